#ifndef FA_TILING_BACKWARD_SHAPE_H_
#define FA_TILING_BACKWARD_SHAPE_H_

#include <cstdint>
#include <string>

#include "tiling/backward/backward_interleave.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// The most keys of a column. More keys gain nothing. dQ is already loaded and stored only once per 128 keys, and the P
/// and dS of a larger tile would not fit into L2.
inline constexpr int64_t kMaxColumnKeys = 128;

/// Rows and keys of a tile. Bits depend on block_k, so block_k is a function of d, d_rope, dv and ISA alone; it is 128,
/// 64 or 32. block_q, a multiple of machine.strip_rows, may follow the number of workers.
struct BackwardShape {
  int64_t block_q = 128, block_k = 128;
  std::string reason;  ///< the reason for these sizes, in words, for Describe()
};

[[nodiscard]] BackwardShape ChooseBackwardShape(const AttentionProblem& problem, const Machine& machine,
                                                const BackwardInterleave& interleave);

/// The cost of a tile without its products: the task itself, and loading and storing dQ, dK and dV. The unit is the
/// cost of one strip's products with kKeyStep keys. The number is a model: 3 % of a tile of 128 rows and 128 keys.
inline constexpr int64_t kTileOverheadGroups = 2;

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_SHAPE_H_
