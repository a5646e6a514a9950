#ifndef FA_TILING_BACKWARD_ORDER_H_
#define FA_TILING_BACKWARD_ORDER_H_

#include <cstdint>
#include <span>

#include "tiling/backward_interleave.h"
#include "tiling/backward_tiles.h"

namespace fa::tiling {

/// A (sequence, kv head) pair with its tiles, which pairs of equal rule share.
struct HeadPair {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  const PairTiles* tiles = nullptr;
};

/// Fills in items, graph (order, edges, ranges) and slots. The bands of interleave.pairs pairs take turns; a pair that
/// is through makes room for the next one, which gets its slot. A gate, which waits for every tile of the earlier pair
/// that no other tile of it waits for, then lets the first tiles of the later one go.
void OrderPairs(std::span<const HeadPair> pairs, const BackwardInterleave& interleave, int64_t group, int workers,
                BackwardPlan& plan);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_ORDER_H_
