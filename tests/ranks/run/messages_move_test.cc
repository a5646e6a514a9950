// A transport moves messages only inside its functions. So a rank with messages under way must call Test between its
// tiles.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <tuple>
#include <utility>
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

constexpr int kRanks = 3;
constexpr unsigned kSecondsToDeadlock = 300;

/// Returns a causal case with as many kv heads as query heads. With a contiguous cut, rank 0 receives no rows and no
/// sums.
BackwardCase CausalCase() {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.heads_kv = c.forward.heads;
  c.forward.lengths = EqualLengths(1, 700, 700);
  return c;
}

/// The parameters are the number of heads in flight and the number of threads per rank.
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
  // The last rank sends its keys to nobody. So it has messages to test only if there is a next unit of heads.
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

/// What two ranks share. A unit has the heads that are in flight together. Rank 0 sends sums and receives none. Rank 1
/// receives no sums until rank 0, in its second unit, has tested the messages of its first unit.
struct Leftover {
  std::mutex mutex;
  std::condition_variable changed;
  bool unit_ended = false, tested = false, given_up = false;
};

class Watched final : public Transport {
 public:
  Watched(std::shared_ptr<Transport> transport, Leftover& leftover)
      : transport_(std::move(transport)), leftover_(leftover) {}

  [[nodiscard]] int rank() const override { return transport_->rank(); }
  [[nodiscard]] int ranks() const override { return transport_->ranks(); }
  Status Reserve(int64_t requests, size_t bytes) override { return transport_->Reserve(requests, bytes); }
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override {
    Status status = transport_->Send(to, tag, bytes, request);
    const std::lock_guard lock(leftover_.mutex);
    if (tag >= kFirstTagOfSums && !leftover_.unit_ended) sums_.insert(*request);
    return status;
  }
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override {
    std::unique_lock lock(leftover_.mutex);
    if (rank() == 0 && tag == kTagOfFirstResults) leftover_.unit_ended = true;
    if (rank() == 1 && tag >= kFirstTagOfSums) {
      const auto may_go_on = [&] { return leftover_.tested || leftover_.given_up; };
      if (!leftover_.changed.wait_for(lock, std::chrono::seconds(30), may_go_on)) leftover_.given_up = true;
    }
    lock.unlock();
    return transport_->Receive(from, tag, bytes, request);
  }
  Status Wait(Request request) override { return transport_->Wait(request); }
  Status Test(Request request, bool* done) override {
    if (rank() == 0 && sums_.contains(request)) {
      const std::lock_guard lock(leftover_.mutex);
      leftover_.tested |= leftover_.unit_ended;  // the tested messages have sums of the first unit of heads
      leftover_.changed.notify_all();
    }
    return transport_->Test(request, done);
  }
  [[nodiscard]] bool CanTest() const override { return true; }
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return transport_->AllGather(mine, all);
  }

 private:
  // Two units of heads can be in flight. Each has one tag for received rows, and one for results that are sent back.
  // The next tag is for sums of parameters, and the tags after it are for the other sums.
  static constexpr int kTagOfFirstResults = 2, kFirstTagOfSums = 5;

  std::shared_ptr<Transport> transport_;
  Leftover& leftover_;
  std::set<Request> sums_;
};

TEST(SumsOfTheUnitBefore, MoveInTheFirstBlockOfTheNext) {
  const HangAlarm alarm(kSecondsToDeadlock);
  const BackwardCase c = CausalCase();
  const BackwardProblem problem(c);
  SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  shards.heads_in_flight = c.forward.heads / 2;
  Leftover leftover;
  Context* const context = ContextOf(DetectIsa(), 1);
  ThreadRanks(2).Run([&](const std::shared_ptr<Transport>& transport) {
    const std::vector<int64_t> rows = RowsOfRank(shards, shards.sq, transport->rank(), 2);
    RankTensors tensors(rows, rows);
    const AttentionGradArgs args = PartOf(problem.args(), c.forward.layout, tensors);
    const auto watched = std::make_shared<Watched>(transport, leftover);
    const Status status = FlashAttentionGrad(args, problem.options(), shards, watched, context);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  EXPECT_TRUE(leftover.tested);
}

INSTANTIATE_TEST_SUITE_P(Units, MessagesMove, testing::Combine(testing::Values(1, 4), testing::Values(1, 3)));

}  // namespace
}  // namespace fa::test
