#include "ops/dense/next_tile.h"

namespace fa::ops {

const tiling::BackwardItem* NextTile(const tiling::BackwardPlan& plan, int32_t task) {
  const core::TaskGraph& graph = plan.graph;
  if (!graph.has_edges()) return nullptr;
  const auto tiles = static_cast<int32_t>(plan.items.size());
  do {
    const auto at = static_cast<size_t>(task);
    const int64_t first = graph.successor_begin[at];
    if (first == graph.successor_begin[at + 1]) return nullptr;
    task = graph.successors[static_cast<size_t>(first)];
  } while (task >= tiles);
  return &plan.items[static_cast<size_t>(task)];
}

FetchedOfNext WhatOfNext(const tiling::BackwardItem& item, const tiling::BackwardItem& next) {
  if (next.first_of_rows) return FetchedOfNext::kRows;
  const bool same_column = next.slot == item.slot && next.key_begin == item.key_begin;
  return same_column ? FetchedOfNext::kPanels : FetchedOfNext::kNothing;
}

}  // namespace fa::ops
