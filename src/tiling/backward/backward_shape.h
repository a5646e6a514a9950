#ifndef FA_TILING_BACKWARD_SHAPE_H_
#define FA_TILING_BACKWARD_SHAPE_H_

#include <cstdint>
#include <string>

#include "tiling/backward/backward_interleave.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Keys of the largest column. More gain nothing: dQ is loaded and stored only once per 128 keys, and the tiles of P
/// and dS would leave L2.
inline constexpr int64_t kMaxColumnKeys = 128;

/// Rows and keys of a tile. block_k is a function of d, d_rope, dv and ISA alone, because bits depend on it: 128, 64 or
/// 32. block_q, a multiple of machine.strip_rows, may follow workers.
struct BackwardShape {
  int64_t block_q = 128, block_k = 128;
  std::string reason;  ///< in words, for Describe()
};

[[nodiscard]] BackwardShape ChooseBackwardShape(const AttentionProblem& problem, const Machine& machine,
                                                const BackwardInterleave& interleave);

/// What a tile costs in addition to its own products (the task itself, loading and storing dQ, dK and dV), in groups of
/// a strip and 8 keys. A model: 3 % of a tile of 128 rows and 128 keys.
inline constexpr int64_t kTileOverheadGroups = 2;

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_SHAPE_H_
