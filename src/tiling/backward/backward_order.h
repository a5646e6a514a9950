#ifndef FA_TILING_BACKWARD_ORDER_H_
#define FA_TILING_BACKWARD_ORDER_H_

#include <cstdint>
#include <span>

#include "tiling/backward/backward_interleave.h"
#include "tiling/backward/backward_tiles.h"

namespace fa::tiling {

/// A (sequence, kv head) pair with its tiles. Pairs with equal masks share their tiles.
struct HeadPair {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  const PairTiles* tiles = nullptr;
};

/// Fills in plan.items, plan.graph and plan.slots. The bands of interleave.pairs pairs follow each other in turn. A
/// finished pair gives its slot to the next pair. A join stands between two pairs that use one slot. The join waits for
/// every tile of the earlier pair that has no successor in that pair. Then it releases the first tiles of the later
/// pair.
void OrderPairs(std::span<const HeadPair> pairs, const BackwardInterleave& interleave, int64_t group, int workers,
                BackwardPlan& plan);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_ORDER_H_
