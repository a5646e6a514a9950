// Compares fa::RowsHeld with the definition of the cuts, and tests that it refuses wrong shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "fa/sequence_shards.h"
#include "support/cases/rank_rows.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using testing::HasSubstr;

TEST(RowsHeld, AreThoseOfTheCut) {
  const auto check = [&](Cut cut, int64_t rows) {
    SequenceShards shards{.cut = cut, .sq = rows, .sk = rows, .intervals = {{{rows / 2, rows}}, {}, {{0, rows / 2}}}};
    for (int rank = 0; rank < 3; ++rank) {
      const auto held = RowsHeld(shards, rows, rank, 3);
      ASSERT_TRUE(held.ok()) << held.status().message();
      std::vector<int64_t> one_by_one;
      for (const SequenceShards::Interval& interval : *held) {
        EXPECT_LT(interval.begin, interval.end);
        for (int64_t row = interval.begin; row < interval.end; ++row) one_by_one.push_back(row);
      }
      EXPECT_EQ(one_by_one, RowsOfRank(shards, rows, rank, 3)) << rows << " rows, rank " << rank;
    }
  };
  ForEachCase(check, Axis{"cut", {Cut::kContiguous, Cut::kZigzag, Cut::kIntervals}},
              Axis{"rows", {0, 1, 127, 128, 129, 1000, 4097}});
}

TEST(RowsHeld, SaysWhatIsWrong) {
  const auto error = [](const SequenceShards& shards, int64_t rows, int rank, int ranks) {
    return RowsHeld(shards, rows, rank, ranks).status().message();
  };
  EXPECT_THAT(error({}, 5, 0, 0), HasSubstr("ranks=0, want >= 1"));
  EXPECT_THAT(error({}, 5, 2, 2), HasSubstr("rank=2, want 0..1"));
  EXPECT_THAT(error({}, -5, 0, 2), HasSubstr("rows=-5, want >= 0"));
  SequenceShards shards{.cut = Cut::kIntervals, .sq = 5, .sk = 5, .intervals = {{{0, 2}}, {{3, 5}}}};
  EXPECT_THAT(error(shards, 5, 0, 2), HasSubstr("shards.intervals: not held once: row 2"));
  EXPECT_THAT(error(shards, 5, 0, 3), HasSubstr("shards.intervals has 2 lists, want 3 (ranks)"));
}

}  // namespace
}  // namespace fa::test
