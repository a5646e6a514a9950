#ifndef FA_TILING_BACKWARD_ORDER_H_
#define FA_TILING_BACKWARD_ORDER_H_

#include <cstdint>
#include <span>

#include "tiling/backward_interleave.h"
#include "tiling/backward_tiles.h"

namespace fa::tiling {

/// A (sequence, kv head) pair with its tiles, which pairs of equal rule share.
struct HeadPair {
  int32_t sequence = 0;
  int32_t head_kv = 0;
  const PairTiles* tiles = nullptr;
};

/// Fills in items and graph (order, edges, ranges) and slots: the pairs' bands take turns, and a pair that is through
/// makes room for the next. A pair takes the slot that was given back first; a gate, which waits for every tile of the
/// slot's earlier pair that no other one waits for, lets its first tiles go.
void OrderPairs(std::span<const HeadPair> pairs, const BackwardInterleave& interleave, int64_t group, int workers,
                BackwardPlan& plan);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_ORDER_H_
