#ifndef FA_TILING_ROW_RULES_H_
#define FA_TILING_ROW_RULES_H_

#include <vector>

#include "fa/mask.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Gives every sequence its rule. Some masks have another rule for the first or the last sequence that has rows.
void SetRowRules(const Mask& mask, std::vector<Sequence>& sequences);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_RULES_H_
