// At one step of a call over ranks, the transport lacks memory. No rank hangs. Every rank gets an error, or computes
// its own rows correctly.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "fa/ranked_attention.h"
#include "ranks/run/ranked_backward.h"
#include "support/cases/rank_rows.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 3, kVictim = 1;
constexpr int64_t kMostSteps = 2000;
constexpr int64_t kReserve = 1;  // Reserve is the step after the first agreement
constexpr unsigned kSecondsToDeadlock = 300;

/// Returns a case that has two units of heads, and dsink, which is summed after them.
BackwardCase SmallCase() {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.lengths = EqualLengths(1, 700, 700);
  c.forward.sink = true;
  return c;
}

std::vector<Status> RunForward(const ForwardProblem& problem, const SequenceShards& shards, ThreadRanks& all) {
  std::vector<Status> statuses(kRanks);
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
    const AttentionArgs args = PartOf(problem.args(), problem.forward_case().layout, tensors);
    Status& status = statuses[static_cast<size_t>(rank)];
    status = FlashAttention(args, problem.options(), shards, transport, ContextOf(DetectIsa(), 1));
    if (status.ok()) tensors.Return();
  });
  return statuses;
}

class TransportShortage : public testing::TestWithParam<std::tuple<Strategy, bool>> {
 protected:
  [[nodiscard]] static SequenceShards Shards() {
    SequenceShards shards = ShardsOf(SmallCase(), Cut::kZigzag, std::get<Strategy>(GetParam()));
    shards.heads_in_flight = 1;
    return shards;
  }
  /// Returns whether both tensors are equal in the rows that the rank holds.
  static bool Same(const TensorView& a, const TensorView& b, int rank) {
    const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, rank, kRanks);
    RankTensors of_a(rows, rows), of_b(rows, rows);
    return SameBytes(of_a.Part(a, 2, true), of_b.Part(b, 2, true));
  }

  /// @param run  called as run(all); returns one status per rank
  /// @param right  called as right(rank) for a rank that succeeded; returns whether that rank's results are right
  template <typename Run, typename Right>
  static void EveryStepFails(const Run& run, const Right& right) {
    const HangAlarm alarm(kSecondsToDeadlock);
    int64_t step = 0;
    for (bool failed = true; failed; ++step) {
      ASSERT_LT(step, kMostSteps);
      SCOPED_TRACE(testing::Message() << "step " << step);
      ThreadRanks all(kRanks, std::get<bool>(GetParam()));
      all.ThrowAtStep(kVictim, step);
      const std::vector<Status> statuses = run(all);
      failed = all.steps(kVictim) > step;
      EXPECT_EQ(statuses[kVictim].code(), failed ? StatusCode::kOutOfMemory : StatusCode::kOk);
      for (int rank = 0; rank < kRanks; ++rank) {
        const Status& status = statuses[static_cast<size_t>(rank)];
        EXPECT_TRUE(failed || status.ok()) << status.message();
        EXPECT_TRUE(!status.ok() || right(rank)) << "rank " << rank;
        if (step != kReserve) continue;
        // The ranks agreed on the error before they sent any message.
        EXPECT_EQ(status.message(), "out of memory: rank 1: the plan");
        EXPECT_EQ(all.sent_bytes(rank), 0);
      }
    }
    EXPECT_GT(step, 10);
  }
};

TEST_P(TransportShortage, NoRankOfAForwardHangs) {
  const ForwardProblem want(SmallCase().forward), problem(SmallCase().forward);
  ASSERT_TRUE(want.Run(ContextOf(DetectIsa(), 1)).ok());
  const auto run = [&](ThreadRanks& all) {
    problem.ForgetOutputs();
    return RunForward(problem, Shards(), all);
  };
  EveryStepFails(run, [&](int rank) {
    const AttentionArgs a = problem.args(), b = want.args();
    return Same(a.out, b.out, rank) && Same(a.lse, b.lse, rank);
  });
}

TEST_P(TransportShortage, NoRankOfABackwardHangs) {
  const BackwardProblem want(SmallCase()), problem(SmallCase());
  ASSERT_TRUE(want.Run(ContextOf(DetectIsa(), 1)).ok());
  std::vector<OwnSums> sums;
  const auto run = [&](ThreadRanks& all) {
    problem.ForgetOutputs();
    RanksRun ended = RunRanks(problem, Shards(), all, kRanks, DetectIsa());
    sums = std::move(ended.sums);
    return std::move(ended.statuses);
  };
  EveryStepFails(run, [&](int rank) {
    const AttentionGradArgs a = problem.args(), b = want.args();
    sums[static_cast<size_t>(rank)].dsink.Put();
    return Same(a.dq, b.dq, rank) && Same(a.dk, b.dk, rank) && Same(a.dv, b.dv, rank) && SameBytes(a.dsink, b.dsink);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, TransportShortage,
                         testing::Combine(testing::Values(Strategy::kHeads, Strategy::kSequence), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Strategy::kHeads ? "Heads" : "Sequence") +
                                  (std::get<1>(info.param) ? "" : "_that_only_waits");
                         });

}  // namespace
}  // namespace fa::test
