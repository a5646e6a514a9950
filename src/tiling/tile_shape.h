#ifndef FA_TILING_TILE_SHAPE_H_
#define FA_TILING_TILE_SHAPE_H_

#include <cstdint>
#include <string>

#include "tiling/problem.h"

namespace fa::tiling {

/// The number of rows of a full tile, before it is rounded up to whole strips. In a forward, 128 rows reuse a key block
/// from L2 often enough that reading the block into L2 hardly takes time. More rows would only take more memory. In a
/// backward, K, V, dK and dV of a key block are read from L2 once per tile. dK and dV are summed over all rows of the
/// tile before they are stored.
inline constexpr int64_t kFullBlockQ = 128;
/// The same number for calls that the tile unit computes. With packed keys, a forward's loop runs over all strips of a
/// tile, and starts and ends once per tile. Keys and values that do not fit L2 are read once per eight strips. In a
/// backward, sums of dK and dV over 256 rows reach more of the unit's rate than sums over 128 rows.
inline constexpr int64_t kFullBlockQOfTiles = 256;
/// @param tiles  whether kernels of the tile unit compute the call
[[nodiscard]] constexpr int64_t FullBlockQ(bool tiles) { return tiles ? kFullBlockQOfTiles : kFullBlockQ; }
/// Rows of the widest strip of any level, and rows of the largest tile (ForwardPlan, BackwardPlan).
inline constexpr int64_t kMaxStripRows = 48;
inline constexpr int64_t kMaxBlockQ = kFullBlockQOfTiles + kMaxStripRows - 1;
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
