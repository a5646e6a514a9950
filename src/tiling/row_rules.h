#ifndef FA_TILING_ROW_RULES_H_
#define FA_TILING_ROW_RULES_H_

#include <vector>

#include "fa/mask.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Gives every sequence the rule that the mask is for it; some masks treat the first or the last one with rows apart.
void SetRowRules(const Mask& mask, std::vector<Sequence>& sequences);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_RULES_H_
