#include "ranks/plan/row_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/each_case.h"

namespace fa::tiling {
namespace {

using Cut = SequenceShards::Cut;
using test::Axis;
using test::ForEachCase;
using test::FromTo;
using testing::ElementsAre;

TEST(RowShards, EveryRowHasOnePlaceOnOneRankForAllSmallCuts) {
  const auto check = [&](Cut cut, int ranks, int64_t unit, int64_t rows) {
    const RowShards shards = RowShards::Make(cut, rows, ranks, unit);
    std::vector<int> held(static_cast<size_t>(rows), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t at = 0;
      for (const PlacedRows& run : shards.Of(rank)) {
        EXPECT_EQ(run.at, at);
        at += run.rows.size();
        for (int64_t row = run.rows.begin; row < run.rows.end; ++row) ++held[static_cast<size_t>(row)];
      }
      EXPECT_EQ(shards.Count(rank), at);
    }
    EXPECT_EQ(std::count(held.begin(), held.end(), 1), rows) << ranks << ' ' << unit << ' ' << rows;
    EXPECT_TRUE(shards.Aligned(unit));
  };
  ForEachCase(check, Axis{"cut", {Cut::kContiguous, Cut::kZigzag}}, Axis{"ranks", FromTo(1, 6)},
              Axis{"unit", {1, 3, 8}}, Axis{"rows", FromTo(0, 60)});
}

TEST(RowShards, ChunksDifferByAtMostOneUnit) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    const RowShards shards = RowShards::Make(Cut::kContiguous, 4 * 50, ranks, 4);
    int64_t least = 4 * 50, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      least = std::min(least, shards.Count(rank));
      most = std::max(most, shards.Count(rank));
    }
    EXPECT_LE(most - least, 4);
  }
}

TEST(RowShards, ZigzagHoldsAnEarlyAndALateChunk) {
  const RowShards shards = RowShards::Make(Cut::kZigzag, 80, 4, 1);
  EXPECT_THAT(shards.Of(1), ElementsAre(PlacedRows{{10, 20}, 0}, PlacedRows{{60, 70}, 10}));
  // The last rank's two chunks touch, so they are one interval.
  EXPECT_THAT(shards.Of(3), ElementsAre(PlacedRows{{30, 50}, 0}));
}

TEST(RowShards, IntervalsKeepTheOrderInWhichARankHoldsThem) {
  const RowShards shards(20, {{{12, 20}, {0, 4}}, {}, {{4, 8}, {8, 8}, {8, 12}}});
  EXPECT_THAT(shards.Of(0), ElementsAre(PlacedRows{{12, 20}, 0}, PlacedRows{{0, 4}, 8}));
  EXPECT_EQ(shards.Count(1), 0);
  EXPECT_THAT(shards.Of(2), ElementsAre(PlacedRows{{4, 12}, 0}));
  EXPECT_TRUE(shards.Aligned(4));
  EXPECT_FALSE(shards.Aligned(8));
}

TEST(RowShards, FindsTheRowThatIsNotHeldOnce) {
  const auto first_wrong = [](int64_t rows, const std::vector<std::vector<Interval>>& intervals, bool want_outside) {
    bool outside = !want_outside;
    const int64_t row = FirstRowNotCoveredOnce(rows, intervals, &outside);
    EXPECT_EQ(outside, want_outside);
    return row;
  };
  EXPECT_EQ(first_wrong(10, {{{5, 10}}, {{0, 5}}}, false), -1);
  EXPECT_EQ(first_wrong(0, {{}, {}}, false), -1);
  EXPECT_EQ(first_wrong(10, {{{5, 10}}, {{0, 4}}}, false), 4);
  EXPECT_EQ(first_wrong(10, {{{3, 10}}, {{0, 5}}}, false), 3);
  EXPECT_EQ(first_wrong(10, {{{0, 9}}}, false), 9);
  EXPECT_EQ(first_wrong(10, {{{0, 11}}}, true), 0);
  EXPECT_EQ(first_wrong(10, {{{7, 3}}}, true), 7);
}

TEST(RowShards, PiecesOfWantedRowsKeepTheirPlaces) {
  const std::vector<PlacedRows> placed{{{12, 20}, 0}, {{0, 4}, 8}};
  const std::vector<Interval> wanted{{2, 13}, {15, 30}};
  EXPECT_THAT(Within(placed, wanted),
              ElementsAre(PlacedRows{{12, 13}, 0}, PlacedRows{{15, 20}, 3}, PlacedRows{{2, 4}, 10}));
  EXPECT_THAT(UnionOf({{5, 7}, {0, 2}, {2, 4}, {6, 9}, {3, 3}}), ElementsAre(Interval{0, 4}, Interval{5, 9}));
}

}  // namespace
}  // namespace fa::tiling
