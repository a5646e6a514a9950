// A transport moves messages only while it is called: every rank that has one under way tests one between its tiles.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "fa/ranked_attention.h"
#include "ops/ranks/run/ranked_backward.h"
#include "support/cases/rank_rows.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 3;
constexpr unsigned kSecondsToDeadlock = 300;

/// Causal, with as many kv heads as query heads: of contiguous cuts, rank 0 receives no rows and no sums.
BackwardCase CausalCase() {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.heads_kv = c.forward.heads;
  c.forward.lengths = EqualLengths(1, 700, 700);
  return c;
}

/// (heads in flight, threads per rank)
class MessagesMove : public testing::TestWithParam<std::tuple<int64_t, int>> {
 protected:
  [[nodiscard]] static SequenceShards Shards(Strategy strategy) {
    SequenceShards shards = ShardsOf(CausalCase(), Cut::kContiguous, strategy);
    shards.heads_in_flight = std::get<int64_t>(GetParam());
    return shards;
  }
  [[nodiscard]] static bool OneUnit() { return std::get<int64_t>(GetParam()) == CausalCase().forward.heads; }
  [[nodiscard]] static int Threads() { return std::get<int>(GetParam()); }

  static void RunForward(Strategy strategy, ThreadRanks& all) {
    const ForwardProblem problem(CausalCase().forward);
    const SequenceShards shards = Shards(strategy);
    static_cast<void>(ContextOf(DetectIsa(), Threads()));
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
      const AttentionArgs args = PartOf(problem.args(), problem.forward_case().layout, tensors);
      const Status status =
          FlashAttention(args, problem.options(), shards, transport, ContextOf(DetectIsa(), Threads()));
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  static void RunBackward(Strategy strategy, ThreadRanks& all) {
    const BackwardProblem problem(CausalCase());
    static_cast<void>(ContextOf(DetectIsa(), Threads()));
    const RanksRun run = RunRanks(problem, Shards(strategy), all, kRanks, DetectIsa(), Threads());
    for (const Status& status : run.statuses) EXPECT_TRUE(status.ok()) << status.message();
  }

  const HangAlarm alarm_{kSecondsToDeadlock};
  ThreadRanks all_{kRanks};
};

TEST_P(MessagesMove, OfAForwardWhoseRowsStay) {
  RunForward(Strategy::kSequence, all_);
  EXPECT_GT(all_.tests(0), 0);
  EXPECT_GT(all_.tests(1), 0);
  // The last rank sends its keys to nobody, and there is no next unit.
  EXPECT_EQ(all_.tests(2) > 0, !OneUnit());
}

TEST_P(MessagesMove, OfAForwardByHeads) {
  RunForward(Strategy::kHeads, all_);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_GT(all_.tests(rank), 0) << rank;
}

TEST_P(MessagesMove, OfABackwardWhoseRowsStay) {
  RunBackward(Strategy::kSequence, all_);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_GT(all_.tests(rank), 0) << rank;
}

TEST_P(MessagesMove, OfABackwardByHeads) {
  RunBackward(Strategy::kHeads, all_);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_GT(all_.tests(rank), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(Units, MessagesMove, testing::Combine(testing::Values(1, 4), testing::Values(1, 3)));

}  // namespace
}  // namespace fa::test
