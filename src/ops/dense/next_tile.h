#ifndef FA_OPS_NEXT_TILE_H_
#define FA_OPS_NEXT_TILE_H_

#include <cstdint>

#include "tiling/backward/backward_plan.h"

namespace fa::ops {

/// Returns the tile that a backward's worker most likely takes after the tile `task`, or null if unknown. The result is
/// the first successor of the task: the next tile of the column or, after the column's last tile, the next tile of the
/// row group. If that successor is a join, the result is the first tile that waits for the join.
[[nodiscard]] const tiling::BackwardItem* NextTile(const tiling::BackwardPlan& plan, int32_t task);

/// What a tile prefetches, during its products, for the next tile.
enum class FetchedOfNext : uint8_t {
  kNothing,
  kPanels,  ///< packed panels of the next tile's row group, if a head's panels do not stay in L2
  kRows     ///< rows of the tensors, which the next tile packs
};

[[nodiscard]] FetchedOfNext WhatOfNext(const tiling::BackwardItem& item, const tiling::BackwardItem& next);

}  // namespace fa::ops

#endif  // FA_OPS_NEXT_TILE_H_
