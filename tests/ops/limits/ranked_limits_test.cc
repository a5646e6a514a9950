// Tests calls over ranks, and their schedules, with absurd sizes and other numbers that no caller would mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/rank_schedule.h"
#include "fa/ranked_attention.h"
#include "ops/limits/claimed_tensors.h"
#include "ops/limits/dense_sizes.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;
using Strategy = SequenceShards::Strategy;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

SequenceShards ShardsOf(const DenseSizes& sizes, Strategy strategy) {
  return {.sq = sizes.sq, .sk = sizes.sk, .intervals = {}, .strategy = strategy};
}

int64_t OwnRows(const SequenceShards& shards, int64_t rows, const Transport& transport) {
  const auto held = RowsHeld(shards, rows, transport.rank(), transport.ranks());
  int64_t own = 0;
  for (const SequenceShards::Interval& interval : held.value()) own += interval.end - interval.begin;
  return own;
}

/// Plans a call as each of two ranks.
/// @param plan  called as plan(sizes of this rank, transport)
template <typename Plan>
Status PlanOfTwoRanks(const DenseSizes& sizes, const SequenceShards& shards, const Plan& plan) {
  std::vector<Status> statuses(2);
  ThreadRanks all(2);
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    DenseSizes own = sizes;
    own.sq = OwnRows(shards, sizes.sq, *transport);
    own.sk = OwnRows(shards, sizes.sk, *transport);
    statuses[static_cast<size_t>(transport->rank())] = plan(own, transport);
  });
  EXPECT_EQ(statuses[0].message(), statuses[1].message()) << Text(sizes);
  return statuses[0];
}

Status PlanForward(const DenseSizes& sizes, const SequenceShards& shards) {
  return PlanOfTwoRanks(sizes, shards, [&](const DenseSizes& own, const std::shared_ptr<Transport>& transport) {
    const auto plan = PlanFlashAttention(ForwardArgs(own), {.mask = Mask::Causal()}, shards, transport);
    EXPECT_TRUE(!plan.ok() || plan->workspace_bytes() < size_t{1} << 47) << Text(sizes);
    return plan.status();
  });
}

Status PlanBackward(const DenseSizes& sizes, const SequenceShards& shards) {
  return PlanOfTwoRanks(sizes, shards, [&](const DenseSizes& own, const std::shared_ptr<Transport>& transport) {
    const auto plan = PlanFlashAttentionGrad(BackwardArgs(own), {.mask = Mask::Causal()}, shards, transport);
    EXPECT_TRUE(!plan.ok() || plan->workspace_bytes() < size_t{1} << 47) << Text(sizes);
    return plan.status();
  });
}

class RankedLimits : public ::testing::TestWithParam<Strategy> {};

TEST_P(RankedLimits, PlansOfAbsurdSizesAreRefusedOrMade) {
  const HangAlarm alarm;
  for (const DenseSizes& sizes : AbsurdDenseSizes()) {
    const SequenceShards shards = ShardsOf(sizes, GetParam());
    for (const Status& status : {PlanForward(sizes, shards), PlanBackward(sizes, shards)}) {
      if (!status.ok()) ExpectRefused(status, Text(sizes));
    }
  }
}

TEST_P(RankedLimits, SchedulesOfAbsurdSizesAreRefusedOrMade) {
  const HangAlarm alarm;
  for (const DenseSizes& sizes : AbsurdDenseSizes()) {
    const SequenceShards shards = ShardsOf(sizes, GetParam());
    for (const int ranks : {2, 64}) {
      const auto forward = ScheduleFlashAttention(ForwardArgs(sizes), {}, shards, {.ranks = ranks});
      if (!forward.ok()) ExpectRefused(forward.status(), Text(sizes));
      const auto backward = ScheduleFlashAttentionGrad(BackwardArgs(sizes), {}, shards, {.ranks = ranks});
      if (!backward.ok()) ExpectRefused(backward.status(), Text(sizes));
    }
  }
}

TEST_P(RankedLimits, AnyNumberOfHeadsInFlightIsTaken) {
  const HangAlarm alarm;
  for (const int64_t heads : {int64_t{3}, Power(31), kLargest}) {
    const DenseSizes sizes{.n = 4, .n_kv = 4, .sq = 300, .sk = 300};
    SequenceShards shards = ShardsOf(sizes, GetParam());
    shards.heads_in_flight = heads;
    EXPECT_EQ(PlanForward(sizes, shards).message(), "") << heads;
    EXPECT_EQ(PlanBackward(sizes, shards).message(), "") << heads;
    const auto schedule = ScheduleFlashAttention(ForwardArgs(sizes), {}, shards, {.ranks = 2});
    ASSERT_TRUE(schedule.ok()) << schedule.status().message();
    for (const RankSchedule::Rank& rank : schedule->ranks) EXPECT_GT(rank.flops, 0) << heads;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, RankedLimits,
                         ::testing::Values(Strategy::kAuto, Strategy::kHeads, Strategy::kSequence),
                         [](const auto& info) {
                           return std::string(info.param == Strategy::kAuto    ? "Auto"
                                              : info.param == Strategy::kHeads ? "Heads"
                                                                               : "Sequence");
                         });

TEST(RankedLimitsOf, BlocksThatNoPlanHasAreRefusedWithBothNumbers) {
  const HangAlarm alarm;
  const DenseSizes group{.n = Power(31), .sq = 300, .sk = 300, .d = 1, .dv = 1};
  EXPECT_THAT(PlanBackward(group, ShardsOf(group, Strategy::kSequence)).message(),
              HasSubstr(" blocks of sums of a call over ranks, want at most "));
}

}  // namespace
}  // namespace fa::test
