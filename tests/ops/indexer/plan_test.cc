// A plan of the indexer or of a loss refuses to run a call that differs from the planned one. From its second run on, a
// plan allocates nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fa/sparse_flash_attention.h"
#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "support/allocation_counter.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

TokenCase Tokens(DType dtype) {
  TokenCase c;
  c.dtype = dtype;
  c.layout = dtype == DType::kF32 ? Layout::kBSND : Layout::kTND;
  c.lengths = {{9, 0, 40, 1}, {300, 3, 170, 640}};
  c.slots = 100;
  c.lists = ListForm::kMessy;
  c.index_dtype = dtype == DType::kF16 ? DType::kI64 : DType::kI32;
  return c;
}

class IndexerPlanRun : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

template <typename Args>
void ExpectNoAllocation(const Result<PlanFor<Args>>& plan, const Args& args) {
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Workspace workspace;
  ASSERT_TRUE(plan->Run(args, workspace).ok());
  EXPECT_LE(plan->info().workspace_bytes, workspace.size());
  EXPECT_FALSE(plan->info().kernels.empty());
  EXPECT_FALSE(plan->Describe().empty());
  for (int run = 0; run < 3; ++run) {
    const int64_t before = Allocations();
    const Status status = plan->Run(args, workspace);
    EXPECT_EQ(Allocations(), before) << "run " << run;
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST_P(IndexerPlanRun, AllocatesNothingFromTheSecondCallOn) {
  const auto [isa, threads] = GetParam();
  Context* context = ContextOf(isa, threads);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t page_rows : {0, 16}) {
      IndexerCase c{.tokens = Tokens(dtype), .heads = 6, .d = 40};
      c.tokens.page_rows = page_rows;
      const IndexerCall call(c);
      ExpectNoAllocation(PlanLightningIndexer(call.args(), call.options(), context), call.args());
    }
    const IndexerGradCall grad(IndexerCase{.tokens = Tokens(dtype), .heads = 6, .d = 40});
    ExpectNoAllocation(PlanLightningIndexerGrad(grad.args(), grad.options(), context), grad.args());
    const LossCall sparse(LossCase{.tokens = Tokens(dtype), .d_rope = 8});
    ExpectNoAllocation(sparse.MakeSparsePlan(context), sparse.sparse_args());
    const LossCall dense(LossCase{.tokens = Tokens(dtype), .dense = true, .heads_kv = 2});
    ExpectNoAllocation(dense.MakeDensePlan(context), dense.dense_args());
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, IndexerPlanRun,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

template <typename Args>
std::string Refusal(const Result<PlanFor<Args>>& plan, const Args& args) {
  return std::string(plan->Run(args).message());
}

TEST(IndexerPlan, RunsOnThePlannedCallAlone) {
  const IndexerCall call(IndexerCase{.tokens = Tokens(DType::kBF16)});
  const auto plan = PlanLightningIndexer(call.args(), call.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  LightningIndexerArgs args = call.args();
  constexpr int64_t kLengths[] = {300, 303, 473, 1112};
  args.lengths_kv = kLengths;
  EXPECT_THAT(Refusal(plan, args), HasSubstr("lengths_kv[3]=1112, want 1113 (as planned)"));
  args = call.args();
  args.weights.data = nullptr;
  EXPECT_THAT(Refusal(plan, args), HasSubstr("weights: null data"));
  args = call.args();
  args.sparse_values.data = args.sparse_indices.data;
  EXPECT_THAT(Refusal(plan, args), HasSubstr("sparse_values: shares memory with sparse_indices"));
  EXPECT_EQ(before.FirstChange(), -1);
}

TEST(IndexerPlan, OfTheBackwardRunsOnThePlannedCallAlone) {
  const IndexerGradCall call(IndexerCase{.tokens = Tokens(DType::kBF16)});
  const auto plan = PlanLightningIndexerGrad(call.args(), call.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  LightningIndexerGradArgs args = call.args();
  args.dweights.data = nullptr;
  EXPECT_THAT(Refusal(plan, args), HasSubstr("dweights: null data"));
  args = call.args();
  args.dk.data = const_cast<void*>(args.k.data);
  EXPECT_THAT(Refusal(plan, args), HasSubstr("dk: shares memory with k"));
  EXPECT_EQ(before.FirstChange(), -1);
}

TEST(IndexerPlan, OfALossRunsOnThePlannedCallAlone) {
  const LossCall sparse(LossCase{.tokens = Tokens(DType::kBF16)});
  const LossCall dense(LossCase{.tokens = Tokens(DType::kBF16), .dense = true});
  const auto of_sparse = sparse.MakeSparsePlan(nullptr);
  const auto of_dense = dense.MakeDensePlan(nullptr);
  ASSERT_TRUE(of_sparse.ok()) << of_sparse.status().message();
  ASSERT_TRUE(of_dense.ok()) << of_dense.status().message();
  const Snapshot before_sparse = sparse.TakeSnapshot(false), before_dense = dense.TakeSnapshot(false);
  SparseIndexerLossArgs args = sparse.sparse_args();
  args.loss.data = nullptr;
  EXPECT_THAT(Refusal(of_sparse, args), HasSubstr("loss: null data"));
  DenseIndexerLossArgs dense_args = dense.dense_args();
  dense_args.softmax_sum_index.data = nullptr;
  EXPECT_THAT(Refusal(of_dense, dense_args), HasSubstr("softmax_sum_index: null data"));
  EXPECT_EQ(before_sparse.FirstChange(), -1);
  EXPECT_EQ(before_dense.FirstChange(), -1);
}

}  // namespace
}  // namespace fa::test
