#ifndef FA_TILING_TILE_SHAPE_H_
#define FA_TILING_TILE_SHAPE_H_

#include <cstdint>
#include <string>

#include "tiling/problem.h"

namespace fa::tiling {

/// Whether the level's products leave the vectors free, so that the softmax of one block runs in one loop with the
/// products of others.
[[nodiscard]] constexpr bool OverlapsSoftmax(Isa isa) { return isa == Isa::kAvx512Amx || isa == Isa::kAmxEmulated; }

/// Rows of a tile, in whole strips. Forward: so many reuse a key block from L2 often enough that the time of reading it
/// into L2 vanishes; more rows only add state. Backward: K, V, dK and dV of a column pass from L2 once for all these
/// rows, and the sums over rows (dK, dV) run over all of them before they are stored.
inline constexpr int64_t kFullBlockQ = 128;
/// Rows of the widest strip of any level, and of the largest tile.
inline constexpr int64_t kMaxStripRows = 48;
inline constexpr int64_t kMaxBlockQ = kFullBlockQ + kMaxStripRows - 1;
/// Keys of the largest block.
inline constexpr int64_t kMaxBlockK = 256;

/// Rows and keys of a tile. block_k is a function of d, dv, d_rope, dtype and ISA alone, because bits depend on it;
/// block_q may follow caches and workers.
struct TileShape {
  int64_t block_q = 128;
  int64_t block_k = 256;
  std::string reason;  ///< in words, for Describe()
};

/// machine.tuned_block_q in whole strips, at most what the rules choose for long sequences and large caches.
[[nodiscard]] int64_t TunedBlockQ(const Machine& machine);

[[nodiscard]] TileShape ChooseTileShape(const AttentionProblem& problem, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_TILE_SHAPE_H_
