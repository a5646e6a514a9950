#ifndef FA_TILING_TILE_SHAPE_H_
#define FA_TILING_TILE_SHAPE_H_

#include <cstdint>
#include <string>

#include "core/amx_emulated.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Returns whether the level's products leave the vector units free. Then one loop runs the softmax of one block
/// together with the products of other blocks.
[[nodiscard]] constexpr bool OverlapsSoftmax(Isa isa) { return isa == Isa::kAvx512Amx || isa == core::kAmxEmulated; }

/// Rows of a tile, rounded up to whole strips. In a forward, these rows use a key block often enough that reading the
/// block into L2 hardly takes time. In a backward, K, V, dK and dV of a column are read from L2 once per tile.
inline constexpr int64_t kFullBlockQ = 128;
/// Rows of the widest strip of any level, and rows of the largest tile (ForwardPlan, BackwardPlan).
inline constexpr int64_t kMaxStripRows = 48;
inline constexpr int64_t kMaxBlockQ = kFullBlockQ + kMaxStripRows - 1;
/// Keys of the largest block.
inline constexpr int64_t kMaxBlockK = 256;

/// Rows and keys of a tile. Bits depend on block_k, so block_k is a function of d, dv, d_rope, dtype and ISA alone.
/// block_q may follow caches and workers.
struct TileShape {
  int64_t block_q = 128;
  int64_t block_k = 256;
  std::string reason;  ///< the reason for these sizes, in words, for Describe()
};

[[nodiscard]] TileShape ChooseTileShape(const AttentionProblem& problem, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_TILE_SHAPE_H_
