// A process whose threads are the ranks forks: after a call over ranks, or during one. The child makes a call in one
// process and a call over new ranks, and ends like any other process.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "fa/ranked_attention.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/execution/child_process.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"

namespace fa::test {
namespace {

using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 2;
constexpr int64_t kRows = 300;

/// Calls `before` whenever a rank is about to send or receive a message, or to gather from all ranks.
class Observed final : public Transport {
 public:
  Observed(std::shared_ptr<Transport> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int ranks() const override { return inner_->ranks(); }
  Status Reserve(int64_t requests, size_t bytes) override { return inner_->Reserve(requests, bytes); }
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override {
    before_();
    return inner_->Send(to, tag, bytes, request);
  }
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override {
    before_();
    return inner_->Receive(from, tag, bytes, request);
  }
  Status Wait(Request request) override {
    before_();
    return inner_->Wait(request);
  }
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    before_();
    return inner_->AllGather(mine, all);
  }

 private:
  std::shared_ptr<Transport> inner_;
  std::function<void()> before_;
};

/// How the ranks compute, and how children end. While oneTBB's threads work, a child must not end by exit
/// (docs/reliability.md, "What others make impossible").
struct Setting {
  Strategy strategy;
  int threads;  ///< threads of the ranks' context
  End end;
};

ForwardCase SomeCase() {
  ForwardCase c;
  c.heads = c.heads_kv = 2;
  c.lengths = {{kRows}, {kRows}};
  return c;
}

class RanksFork : public ::testing::TestWithParam<Setting> {
 protected:
  RanksFork() : want_(OutputsOf(problem_, context_)) {}

  /// Makes a call over ranks, which are new threads, and returns whether it has the bits of one process. Rank 0 calls
  /// `before` as Observed does.
  [[nodiscard]] bool RanksAreRight(const std::function<void()>& before = [] {}) const {
    const SequenceShards shards = {.sq = kRows, .sk = kRows, .intervals = {}, .strategy = GetParam().strategy};
    problem_.ForgetOutputs();
    ThreadRanks all(kRanks);
    std::atomic<int> failed = 0;
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, kRows, rank, kRanks), RowsOfRank(shards, kRows, rank, kRanks));
      const AttentionArgs args = PartOf(problem_.args(), problem_.forward_case().layout, tensors);
      const auto observed = std::make_shared<Observed>(
          transport, rank == 0 ? before : [] {});
      if (FlashAttention(args, problem_.options(), shards, observed, context_).ok()) {
        tensors.Return();
      } else {
        ++failed;
      }
    });
    return failed == 0 && SameBits(want_, problem_.Outputs());
  }

  /// Makes the calls of a child, in its parent's context.
  /// @return 0, or the number of the check that failed
  [[nodiscard]] int CallInAChild() const {
    problem_.ForgetOutputs();
    if (!problem_.Run(context_).ok() || !SameBits(want_, problem_.Outputs())) return 1;
    problem_.ForgetOutputs();
    if (!problem_.Run(nullptr).ok() || !SameBits(want_, problem_.Outputs())) return 2;
    return RanksAreRight() ? 0 : 3;
  }
  void ExpectChildren(const std::string& when) const {
    EXPECT_TRUE(RunsInAChild([this] { return CallInAChild(); }, GetParam().end)) << when;
  }

  Context* const context_ = ContextOf(DetectIsa(), GetParam().threads);
  const ForwardProblem problem_{SomeCase()};
  const ForwardOutputs want_;
};

TEST_P(RanksFork, AfterACallOverRanksChildrenCall) {
  ASSERT_TRUE(RanksAreRight());
  ExpectChildren("after a call");
  EXPECT_TRUE(RanksAreRight());
}

// The thread of one rank forks, while the other rank may be anywhere in its work.
TEST_P(RanksFork, BeforeEachMessageOfARankChildrenCall) {
  int messages = 0;
  EXPECT_TRUE(RanksAreRight([&] { ExpectChildren("before message " + std::to_string(++messages)); }));
  EXPECT_GT(messages, 4);
}

TEST_P(RanksFork, WhileRanksWorkChildrenOfAnotherThreadCall) {
  std::atomic<bool> ending = false;
  std::atomic<int> calls = 0;
  std::thread working([&] {
    while (!ending) {
      EXPECT_TRUE(RanksAreRight());
      ++calls;
    }
  });
  while (calls == 0) std::this_thread::yield();
  for (int fork = 0; fork < 8; ++fork) ExpectChildren("fork " + std::to_string(fork));
  ending = true;
  working.join();
}

INSTANTIATE_TEST_SUITE_P(Settings, RanksFork,
                         ::testing::Values(Setting{Strategy::kHeads, 2, End::kAtOnce},
                                           Setting{Strategy::kSequence, 2, End::kAtOnce},
                                           Setting{Strategy::kHeads, 1, End::kExit},
                                           Setting{Strategy::kSequence, 1, End::kExit}),
                         [](const auto& info) {
                           return std::string(info.param.strategy == Strategy::kHeads ? "Heads" : "Sequence") +
                                  (info.param.end == End::kExit ? "_exit" : "");
                         });

}  // namespace
}  // namespace fa::test
