// Tests which tile of a backward plan comes next, and which of that tile's rows and panels are fetched ahead.

#include "ops/dense/next_tile.h"

#include <gtest/gtest.h>

namespace fa::test {
namespace {

using ops::FetchedOfNext;
using ops::NextTile;
using ops::WhatOfNext;
using tiling::BackwardItem;

TEST(NextTile, IsTheFirstSuccessorBeyondJoins) {
  tiling::BackwardPlan plan;
  plan.items.resize(4);
  // The edges are 0 -> 2, 0 -> 1, 1 -> 4 -> 5 -> 3 and 2 -> 1. Tasks 4 and 5 are joins. Tile 3 has no successor.
  plan.graph.task_count = 6;
  plan.graph.successor_begin = {0, 2, 3, 4, 4, 5, 6};
  plan.graph.successors = {2, 1, 4, 1, 5, 3};
  EXPECT_EQ(NextTile(plan, 0), &plan.items[2]);
  EXPECT_EQ(NextTile(plan, 1), &plan.items[3]);
  EXPECT_EQ(NextTile(plan, 2), &plan.items[1]);
  EXPECT_EQ(NextTile(plan, 3), nullptr);
}

TEST(NextTile, IsUnknownWithoutEdges) {
  tiling::BackwardPlan plan;
  plan.items.resize(2);
  plan.graph.task_count = 2;
  EXPECT_EQ(NextTile(plan, 0), nullptr);
}

constexpr BackwardItem kTile{.slot = 1, .row_begin = 0, .row_end = 96, .key_begin = 128, .key_end = 256};

TEST(WhatOfNext, ARowGroupThatIsOpenHasPanelsInTheSameColumnOnly) {
  BackwardItem next = kTile;
  next.row_begin = 96;
  EXPECT_EQ(WhatOfNext(kTile, next), FetchedOfNext::kPanels);
  BackwardItem other = next;
  other.key_begin = 0;
  EXPECT_EQ(WhatOfNext(kTile, other), FetchedOfNext::kNothing);
  other = next;
  other.slot = 0;
  EXPECT_EQ(WhatOfNext(kTile, other), FetchedOfNext::kNothing);
}

TEST(WhatOfNext, ARowGroupThatIsNotYetOpenHasRowsWhereverItsKeysAre) {
  BackwardItem next = kTile;
  next.first_of_rows = true;
  for (const int slot : {1, 0}) {
    next.slot = slot;
    EXPECT_EQ(WhatOfNext(kTile, next), FetchedOfNext::kRows);
  }
}

}  // namespace
}  // namespace fa::test
