// In a run, ranks exchange only tensors and one status word per rank. Once the ranks have agreed to run, no rank fails
// for lack of threads. If a task of a rank throws, the rank sends NaN instead of its results. So no other rank waits
// for ever, or takes the results for valid.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/run/serial_executor.h"
#include "fa/ranked_attention.h"
#include "ranks/run/ranked_backward.h"
#include "support/cases/rank_rows.h"
#include "support/each_case.h"
#include "support/execution/context_on.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 3, kVictim = 1;
constexpr unsigned kSecondsToDeadlock = 300;

BackwardCase CaseOf(bool sums) {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.lengths = EqualLengths(1, 700, 700);
  c.forward.sink = sums;
  return c;
}

/// How a call ended on one rank: its status, its output elements, and the expected elements.
struct Ended {
  Status status;
  std::vector<float> outputs, wanted;
};

void Append(const TensorView& tensor, std::vector<float>& to) {
  int64_t count = 1;
  for (int i = 0; i < tensor.shape.rank(); ++i) count *= tensor.shape[i];
  const auto* const from = static_cast<const float*>(tensor.data);
  to.insert(to.end(), from, from + count);
}

class OneStatusWord : public testing::TestWithParam<std::tuple<Strategy, bool>> {
 protected:
  [[nodiscard]] static SequenceShards Shards() {
    SequenceShards shards = ShardsOf(CaseOf(true), Cut::kZigzag, std::get<Strategy>(GetParam()));
    shards.heads_in_flight = 1;
    return shards;
  }
  [[nodiscard]] static bool can_test() { return std::get<bool>(GetParam()); }

  /// @param context_of  called as context_of(rank)
  template <typename ContextOfRank>
  static std::vector<Ended> RunForward(const ContextOfRank& context_of) {
    const ForwardProblem problem(CaseOf(true).forward), want(CaseOf(true).forward);
    EXPECT_TRUE(want.Run(ContextOf(DetectIsa(), 1)).ok());
    std::vector<Ended> ended(kRanks);
    ThreadRanks(kRanks, can_test()).Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, rank, kRanks);
      RankTensors tensors(rows, rows), wanted(rows, rows);
      const AttentionArgs args = PartOf(problem.args(), Layout::kBNSD, tensors);
      Ended& own = ended[static_cast<size_t>(rank)];
      own.status = FlashAttention(args, problem.options(), Shards(), transport, context_of(rank));
      Append(args.out, own.outputs);
      Append(wanted.Part(TensorView(want.args().out), 2, true), own.wanted);
    });
    return ended;
  }
  template <typename ContextOfRank>
  static std::vector<Ended> RunBackward(const ContextOfRank& context_of) {
    const BackwardProblem problem(CaseOf(true)), want(CaseOf(true));
    EXPECT_TRUE(want.Run(ContextOf(DetectIsa(), 1)).ok());
    std::vector<Ended> ended(kRanks);
    ThreadRanks(kRanks, can_test()).Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, rank, kRanks);
      RankTensors tensors(rows, rows), wanted(rows, rows);
      AttentionGradArgs args = PartOf(problem.args(), Layout::kBNSD, tensors);
      OwnSum dsink(problem.args().dsink);
      args.dsink = dsink.view();
      Ended& own = ended[static_cast<size_t>(rank)];
      own.status = FlashAttentionGrad(args, problem.options(), Shards(), transport, context_of(rank));
      const AttentionGradArgs of_one = want.args();
      for (const auto& [got, tensor] :
           {std::pair(args.dq, of_one.dq), std::pair(args.dk, of_one.dk), std::pair(args.dv, of_one.dv)}) {
        Append(got, own.outputs);
        Append(wanted.Part(TensorView(tensor), 2, true), own.wanted);
      }
      Append(args.dsink, own.outputs);
      Append(of_one.dsink, own.wanted);
    });
    return ended;
  }
};

TEST_P(OneStatusWord, IsAllThatARunExchangesButTensors) {
  for (const bool sums : {false, true}) {
    const BackwardProblem problem(CaseOf(sums));
    const ForwardProblem forward(CaseOf(sums).forward);
    ThreadRanks all(kRanks, can_test());
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, rank, kRanks);
      RankTensors tensors(rows, rows);
      Context* const context = ContextOf(DetectIsa(), 1);
      AttentionGradArgs args = PartOf(problem.args(), Layout::kBNSD, tensors);
      OwnSum dsink(problem.args().dsink);
      args.dsink = dsink.view();
      const AttentionArgs forward_args = PartOf(forward.args(), Layout::kBNSD, tensors);
      const auto plan = PlanFlashAttentionGrad(args, problem.options(), Shards(), transport, context);
      const auto forward_plan = PlanFlashAttention(forward_args, forward.options(), Shards(), transport, context);
      ASSERT_TRUE(plan.ok() && forward_plan.ok());
      for (int run = 0; run < 2; ++run) {
        const int64_t before = all.gathers(rank);
        EXPECT_TRUE(forward_plan->Run(forward_args).ok());
        const int64_t between = all.gathers(rank);
        EXPECT_EQ(between - before, 1);
        EXPECT_TRUE(plan->Run(args).ok());
        EXPECT_EQ(all.gathers(rank) - between, sums ? 2 : 1);  // the second gather is of dsink
      }
    });
  }
}

// An executor that finds no memory for itself or for its threads.
class NoThreads final : public core::Executor {
 public:
  Status Run(const core::TaskGraph& /*graph*/, core::TaskFunction /*task*/, std::byte* /*state*/) override {
    return Status::OutOfMemory("thread arena");
  }
  Status RunWithArrivals(const core::TaskGraph& /*graph*/, core::TaskFunction /*task*/, std::byte* /*state*/,
                         core::Arrivals& /*arrivals*/) override {
    return Status::OutOfMemory("thread arena");
  }
  [[nodiscard]] int workers() const override { return 2; }
};

TEST_P(OneStatusWord, ARankWithoutThreadsComputesAlone) {
  const HangAlarm alarm(kSecondsToDeadlock);
  for (const bool has_executor : {false, true}) {
    const auto make = [=]() -> std::unique_ptr<core::Executor> {
      if (!has_executor) throw std::bad_alloc();
      return std::make_unique<NoThreads>();
    };
    const auto alone = ContextOn(make, DetectIsa(), 2);
    const auto context_of = [&](int rank) { return rank == kVictim ? alone.get() : ContextOf(DetectIsa(), 1); };
    for (const bool backward : {false, true}) {
      for (const Ended& ended : backward ? RunBackward(context_of) : RunForward(context_of)) {
        EXPECT_TRUE(ended.status.ok()) << ended.status.message();
        EXPECT_EQ(ended.outputs, ended.wanted);
      }
    }
  }
}

/// An executor that runs some tasks and throws in place of the others.
class Throws final : public core::Executor {
 public:
  explicit Throws(std::atomic<int64_t>& tasks_left) : tasks_left_(tasks_left) {}
  Status Run(const core::TaskGraph& graph, core::TaskFunction task, std::byte* state) override {
    auto some = Some(task);
    return core::SerialExecutor().Run(graph, core::TaskFunction(some), state);
  }
  Status RunWithArrivals(const core::TaskGraph& graph, core::TaskFunction task, std::byte* state,
                         core::Arrivals& arrivals) override {
    auto some = Some(task);
    return core::Executor::RunWithArrivals(graph, core::TaskFunction(some), state, arrivals);
  }
  [[nodiscard]] int workers() const override { return 1; }

 private:
  struct SomeTasks {
    core::TaskFunction task;
    std::atomic<int64_t>& left;
    void operator()(int32_t number, int worker) const {
      if (left.fetch_sub(1) <= 0) throw std::runtime_error("a task that throws");
      task(number, worker);
    }
  };
  [[nodiscard]] SomeTasks Some(core::TaskFunction task) const { return {task, tasks_left_}; }

  std::atomic<int64_t>& tasks_left_;
};

TEST_P(OneStatusWord, ATaskThatThrowsSpoilsWhatItsRankSends) {
  const HangAlarm alarm(kSecondsToDeadlock);
  const auto check = [&](bool backward) {
    int64_t spoilt = 0;
    for (const int64_t tasks : {0, 1, 2, 5, 11}) {
      std::atomic<int64_t> left = tasks;
      const auto context = ContextOn([&] { return std::make_unique<Throws>(left); }, DetectIsa(), 2);
      const auto context_of = [&](int rank) { return rank == kVictim ? context.get() : ContextOf(DetectIsa(), 1); };
      const std::vector<Ended> all = backward ? RunBackward(context_of) : RunForward(context_of);
      if (all[kVictim].status.ok()) continue;  // the rank has so few tasks that all of them ran
      EXPECT_EQ(all[kVictim].status.code(), StatusCode::kInternal) << all[kVictim].status.message();
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == kVictim) continue;
        const Ended& ended = all[static_cast<size_t>(rank)];
        EXPECT_TRUE(ended.status.ok()) << ended.status.message();
        for (size_t i = 0; i < ended.outputs.size(); ++i) {
          ASSERT_TRUE(std::isnan(ended.outputs[i]) || ended.outputs[i] == ended.wanted[i]) << rank << ": " << i;
          spoilt += std::isnan(ended.outputs[i]) ? 1 : 0;
        }
      }
    }
    // In a forward by sequence, rows stay with their ranks, so no rank receives another's results.
    EXPECT_EQ(spoilt > 0, backward || std::get<Strategy>(GetParam()) == Strategy::kHeads);
  };
  ForEachCase(check, Axis{"backward", {false, true}});
}

INSTANTIATE_TEST_SUITE_P(Strategies, OneStatusWord,
                         testing::Combine(testing::Values(Strategy::kHeads, Strategy::kSequence), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Strategy::kHeads ? "Heads" : "Sequence") +
                                  (std::get<1>(info.param) ? "" : "_that_only_waits");
                         });

}  // namespace
}  // namespace fa::test
