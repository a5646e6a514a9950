// Tests a call over ranks while memory is short. In turn, each allocation of the ranks fails: alone, or with all later
// ones. Each rank must get a status, and none may wait for ever. No memory is lost, and the next call has the bits of
// one process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fa/context.h"
#include "fa/ranked_attention.h"
#include "support/allocation_counter.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 2;
// The cut is a multiple of kRowUnit, so each rank computes its own rows, with the bits of one process.
constexpr int64_t kRows = 130, kCut = 128, kMostPlaces = 20000;
constexpr unsigned kSecondsToDeadlock = 300;

ForwardCase SmallCase() {
  ForwardCase c;
  c.heads = c.heads_kv = 2;
  c.d = c.dv = 16;
  c.lengths = EqualLengths(1, kRows, kRows);
  return c;
}

struct Forward {
  using Problem = ForwardProblem;
  static ForwardCase Case() { return SmallCase(); }
  static Layout LayoutOf(const ForwardCase& c) { return c.layout; }
  static Status Call(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                     const std::shared_ptr<Transport>& transport, Context* context) {
    return FlashAttention(args, options, shards, transport, context);
  }
};

struct Backward {
  using Problem = BackwardProblem;
  static BackwardCase Case() {
    BackwardCase c;
    c.forward = SmallCase();
    return c;
  }
  static Layout LayoutOf(const BackwardCase& c) { return c.forward.layout; }
  static Status Call(const AttentionGradArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                     const std::shared_ptr<Transport>& transport, Context* context) {
    return FlashAttentionGrad(args, options, shards, transport, context);
  }
};

struct Ending {
  std::vector<Status> statuses = std::vector<Status>(kRanks);
  int64_t failed = 0;
};

class RanksMemory : public ::testing::TestWithParam<std::tuple<Strategy, bool>> {
 protected:
  RanksMemory() {
    for (auto& context : contexts_) context = std::move(Context::Create({.threads = 1})).value();
    alarm(HangSeconds(kSecondsToDeadlock));
  }
  ~RanksMemory() override { alarm(0); }

  /// Makes a call over ranks. Memory is short for all ranks until rank 0 has returned.
  /// @param place  number of the allocation that fails, or 0 for none
  template <typename Direction>
  [[nodiscard]] Ending CallShortOfMemory(const typename Direction::Problem& problem, int64_t place) const {
    const auto [strategy, all_later] = GetParam();
    const SequenceShards shards = {.cut = SequenceShards::Cut::kIntervals,
                                   .sq = kRows,
                                   .sk = kRows,
                                   .intervals = {{{0, kCut}}, {{kCut, kRows}}},
                                   .strategy = strategy};
    Ending ending;
    ThreadRanks all(kRanks);
    std::barrier start(kRanks);
    all.Run([&, all_later = all_later](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, kRows, rank, kRanks), RowsOfRank(shards, kRows, rank, kRanks));
      const auto args = PartOf(problem.args(), Direction::LayoutOf(Direction::Case()), tensors);
      const AttentionOptions options = problem.options();
      Status& status = ending.statuses[static_cast<size_t>(rank)];
      Context* const context = contexts_[static_cast<size_t>(rank)].get();
      start.arrive_and_wait();
      if (rank == 0 && place > 0) {
        const FailingAllocations failing(place, all_later);
        status = Direction::Call(args, options, shards, transport, context);
        ending.failed = failing.failed();
      } else {
        status = Direction::Call(args, options, shards, transport, context);
      }
      if (status.ok()) tensors.Return();
    });
    return ending;
  }

  static SequenceShards Uncut() {
    return {.cut = SequenceShards::Cut::kContiguous,
            .sq = kRows,
            .sk = kRows,
            .intervals = {},
            .strategy = std::get<Strategy>(GetParam())};
  }

  template <typename Direction>
  void EveryRankGetsAStatus() const {
    const typename Direction::Problem problem(Direction::Case());
    const auto want = OutputsOf(problem, contexts_[0].get());
    int64_t shortages = 0;
    for (int64_t place = 1;; place += 1 + place / (Sanitized() ? 16 : 64)) {
      ASSERT_LT(place, kMostPlaces);
      const int64_t live = LiveAllocations();
      int64_t failed = 0;
      {
        const Ending ending = CallShortOfMemory<Direction>(problem, place);
        failed = ending.failed;
        for (const Status& status : ending.statuses) {
          shortages += status.code() == StatusCode::kOutOfMemory ? 1 : 0;
          EXPECT_TRUE(status.ok() || failed > 0) << status.message();
        }
      }
      problem.ForgetOutputs();
      for (const Status& status : CallShortOfMemory<Direction>(problem, 0).statuses) {
        ASSERT_TRUE(status.ok()) << status.message();
      }
      ASSERT_TRUE(SameBits(want, problem.Outputs())) << "after place " << place;
      EXPECT_TRUE(place == 1 || LiveAllocations() == live) << LiveAllocations() - live << " lost after place " << place;
      if (failed == 0) break;
    }
    EXPECT_GT(shortages, 10);
  }

  // Each rank has its own context. So the memory that a context keeps does not depend on which ranks compute at once.
  std::unique_ptr<Context> contexts_[kRanks];
};

TEST_P(RanksMemory, EveryRankOfAForwardGetsAStatus) { EveryRankGetsAStatus<Forward>(); }
TEST_P(RanksMemory, EveryRankOfABackwardGetsAStatus) { EveryRankGetsAStatus<Backward>(); }

/// The transport of rank 0 in a call in which all ranks send the same data. Its collectives allocate no memory.
class Echo final : public Transport {
 public:
  explicit Echo(int ranks) : ranks_(ranks) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  Status Send(int /*to*/, int /*tag*/, std::span<const std::byte> /*bytes*/, Request* /*request*/) override {
    return Status::Internal("nobody to send to");
  }
  Status Receive(int /*from*/, int /*tag*/, std::span<std::byte> /*bytes*/, Request* /*request*/) override {
    return Status::Internal("nobody to receive from");
  }
  Status Wait(Request /*request*/) override { return Status::Ok(); }
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++gathered_;
    for (auto to = all.begin(); to != all.end();) to = std::copy(mine.begin(), mine.end(), to);
    return Status::Ok();
  }
  [[nodiscard]] int TakeGathered() { return std::exchange(gathered_, 0); }

 private:
  int ranks_, gathered_ = 0;
};

// In a collective, all ranks wait for each other. With MPI they would wait for ever for a rank that has returned. So a
// rank without memory first tells the others.
TEST_P(RanksMemory, ARankWithoutMemoryTellsTheOthersWhenItPlans) {
  const ForwardProblem problem(SmallCase());
  const AttentionArgs args = problem.args();
  const AttentionOptions options = problem.options();
  const auto alone = std::make_shared<Echo>(1);
  int told = 0;
  for (int64_t place = 1, failed = 1; failed > 0; ++place) {
    ASSERT_LT(place, kMostPlaces);
    bool ok = false;
    {
      const FailingAllocations failing(place, std::get<bool>(GetParam()));
      ok = PlanFlashAttention(args, options, Uncut(), alone, contexts_[0].get()).ok();
      failed = failing.failed();
    }
    // A rank tells the others two statuses, or one status and the text of an error.
    EXPECT_GE(alone->TakeGathered(), 2) << "place " << place;
    told += ok ? 0 : 1;
  }
  EXPECT_GT(told, 10);
}

TEST_P(RanksMemory, ARankWithoutMemoryTellsTheOthersWhenItRuns) {
  const ForwardProblem problem(SmallCase());
  const AttentionArgs args = problem.args();
  const AttentionOptions options = problem.options();
  int errors = 0;
  for (int64_t place = 1, failed = 1; failed > 0; ++place) {
    ASSERT_LT(place, kMostPlaces);
    const auto alone = std::make_shared<Echo>(1);
    const auto context = std::move(Context::Create({.threads = 1})).value();  // a new context has no workspaces yet
    const auto plan = PlanFlashAttention(args, options, Uncut(), alone, context.get());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    (void)alone->TakeGathered();
    bool ok = false;
    {
      const FailingAllocations failing(place, std::get<bool>(GetParam()));
      ok = plan->Run(args).ok();
      failed = failing.failed();
    }
    EXPECT_GE(alone->TakeGathered(), 1) << "place " << place;
    errors += ok ? 0 : 1;
  }
  EXPECT_GT(errors, 0);
}

// If one message cannot hold the texts of all ranks, the texts come in pieces.
TEST(RanksAgreement, AnyNumberOfRanksHearsAnError) {
  const ForwardProblem problem(SmallCase());
  const SequenceShards shards = {.sq = kRows, .sk = kRows, .intervals = {}, .heads_in_flight = -1};
  for (const int ranks : {1, 13, 2048, 2049, 4000}) {
    const Status status = FlashAttention(problem.args(), problem.options(), shards, std::make_shared<Echo>(ranks));
    EXPECT_EQ(status.message(), "invalid argument: rank 0: shards.heads_in_flight=-1, want >= 0") << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, RanksMemory,
                         ::testing::Combine(::testing::Values(Strategy::kHeads, Strategy::kSequence),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Strategy::kHeads ? "Heads" : "Sequence") +
                                  (std::get<1>(info.param) ? "_from_there_on" : "_once");
                         });

}  // namespace
}  // namespace fa::test
