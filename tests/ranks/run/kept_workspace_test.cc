// If an error of the transport ends a run, messages may still be under way. So the transport keeps the run's workspace
// until the transport is freed. No other call uses this workspace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "fa/ranked_attention.h"
#include "ranks/run/ranked_backward.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 2;

/// The transport of rank 0 in a call in which all ranks send the same data. Messages arrive only when the test calls
/// Arrive.
class Late final : public Transport {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int ranks() const override { return kRanks; }
  Status Send(int /*to*/, int /*tag*/, std::span<const std::byte> /*bytes*/, Request* request) override {
    *request = 0;
    return Status::Ok();
  }
  Status Receive(int /*from*/, int /*tag*/, std::span<std::byte> bytes, Request* request) override {
    expected_.push_back(bytes);
    *request = 0;
    return Status::Ok();
  }
  Status Wait(Request /*request*/) override { return Status::Internal("the network is gone"); }
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    for (auto to = all.begin(); to != all.end();) to = std::copy(mine.begin(), mine.end(), to);
    return Status::Ok();
  }

  void Arrive() const {
    for (const std::span<std::byte> bytes : expected_) std::fill(bytes.begin(), bytes.end(), std::byte{0x7f});
  }
  [[nodiscard]] bool AsArrived() const {
    return std::all_of(expected_.begin(), expected_.end(), [](std::span<std::byte> bytes) {
      return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0x7f}; });
    });
  }
  [[nodiscard]] bool expects() const { return !expected_.empty(); }

 private:
  std::vector<std::span<std::byte>> expected_;
};

class KeptWorkspace : public testing::TestWithParam<Strategy> {
 protected:
  static BackwardCase Case() {
    BackwardCase c = LongCase(DType::kF32, 0);
    c.forward.lengths = EqualLengths(1, 640, 640);
    return c;
  }
  static SequenceShards Shards() { return ShardsOf(Case(), Cut::kContiguous, GetParam()); }

  /// @param run  called as run(plan, args); returns the error
  template <typename Run>
  void ExpectUntouched(const std::shared_ptr<Late>& transport, Context* context, const Run& run) const {
    const BackwardProblem problem(Case());
    const BackwardOutputs want = OutputsOf(problem, context);
    const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, 0, kRanks);
    RankTensors tensors(rows, rows);
    const AttentionGradArgs args = PartOf(problem.args(), Layout::kBNSD, tensors);
    {
      const auto plan = PlanFlashAttentionGrad(args, problem.options(), Shards(), transport, context);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ(run(*plan, args).message(), "internal error: the network is gone");
    }
    ASSERT_TRUE(transport->expects());
    transport->Arrive();
    problem.ForgetOutputs();
    EXPECT_TRUE(SameBits(want, OutputsOf(problem, context)));  // this call takes another workspace from the pool
    EXPECT_TRUE(transport->AsArrived());
  }
};

TEST_P(KeptWorkspace, OfThePoolIsNotLentAgain) {
  const auto context = std::move(Context::Create({.threads = 1})).value();
  ExpectUntouched(std::make_shared<Late>(), context.get(),
                  [](const PlanFor<AttentionGradArgs>& plan, const AttentionGradArgs& args) { return plan.Run(args); });
}

TEST_P(KeptWorkspace, OfTheCallerBeginsAnew) {
  const auto context = std::move(Context::Create({.threads = 1})).value();
  const auto transport = std::make_shared<Late>();
  Workspace workspace;
  ExpectUntouched(transport, context.get(), [&](const PlanFor<AttentionGradArgs>& plan, const AttentionGradArgs& args) {
    return plan.Run(args, workspace);
  });
  EXPECT_EQ(workspace.size(), 0u);
  // The new size is smaller. So if the workspace had kept its old memory, Reserve would have used it again.
  ASSERT_TRUE(workspace.Reserve(4096).ok());
  std::fill_n(workspace.data(), workspace.size(), std::byte{0});
  EXPECT_TRUE(transport->AsArrived());
}

// If an error comes before any message, the caller keeps the workspace.
TEST_P(KeptWorkspace, StaysWithACallThatDidNotBegin) {
  const auto context = std::move(Context::Create({.threads = 1})).value();
  const BackwardProblem problem(Case());
  const std::vector<int64_t> rows = RowsOfRank(Shards(), Shards().sq, 0, kRanks);
  RankTensors tensors(rows, rows);
  AttentionGradArgs args = PartOf(problem.args(), Layout::kBNSD, tensors);
  const auto plan = PlanFlashAttentionGrad(args, problem.options(), Shards(), std::make_shared<Late>(), context.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Workspace workspace;
  args.q.data = nullptr;
  EXPECT_EQ(plan->Run(args, workspace).code(), StatusCode::kInvalidArgument);
  EXPECT_GE(workspace.size(), plan->workspace_bytes());
}

INSTANTIATE_TEST_SUITE_P(Strategies, KeptWorkspace, testing::Values(Strategy::kHeads, Strategy::kSequence),
                         [](const auto& info) { return info.param == Strategy::kHeads ? "Heads" : "Sequence"; });

}  // namespace
}  // namespace fa::test
