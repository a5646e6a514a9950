#ifndef FA_TILING_ROW_RULES_H_
#define FA_TILING_ROW_RULES_H_

#include <string>
#include <vector>

#include "fa/mask.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Sets the RowRule of every sequence. Under some masks the first or the last sequence that has rows keeps other keys
/// than the rest.
void SetRowRules(const Mask& mask, std::vector<Sequence>& sequences);

/// Returns the masks of all sequences in words: "no rule" (every row keeps every key), "causal" (the last row sees the
/// last key), "causal from the first row", "row i: keys i-4 to i+0", "prefix", "listed rows", or "rules that differ".
[[nodiscard]] std::string MaskText(const std::vector<Sequence>& sequences);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_RULES_H_
