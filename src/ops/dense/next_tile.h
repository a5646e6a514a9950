#ifndef FA_OPS_NEXT_TILE_H_
#define FA_OPS_NEXT_TILE_H_

#include <cstdint>

#include "tiling/backward/backward_plan.h"

namespace fa::ops {

/// The tile of a backward that the worker of `task`, a tile, most likely takes next: the first of the task's
/// successors, which is the next tile of its column, or behind the last one that of its row group; behind a join the
/// one that reuses its slot. Null: unknown.
[[nodiscard]] const tiling::BackwardItem* NextTile(const tiling::BackwardPlan& plan, int32_t task);

/// What of the next tile arrives during the products of a tile.
enum class FetchedOfNext : uint8_t {
  kNothing,
  kPanels,  ///< of its row group, which come from L3 where a head's do not stay in L2
  kRows     ///< of the tensors, which it packs
};

/// @param sums_travel  whether sums of columns outlive the graph; rows are then left alone, which was not measured
[[nodiscard]] FetchedOfNext WhatOfNext(const tiling::BackwardItem& item, const tiling::BackwardItem& next,
                                       bool sums_travel);

}  // namespace fa::ops

#endif  // FA_OPS_NEXT_TILE_H_
