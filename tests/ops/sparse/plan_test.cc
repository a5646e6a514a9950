// Tests the description of plans of sparse attention. From the second run on, a plan allocates nothing.
#include <gtest/gtest.h>

#include "ops/sparse/sparse_case.h"
#include "support/allocation_counter.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class SparsePlanRun : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

std::vector<SparseCase> Cases() {
  std::vector<SparseCase> cases;
  cases.emplace_back();
  SparseCase c{.heads = 20, .d = 40, .d_rope = 8, .dv = 24};
  c.tokens.lengths = {{9, 0, 14}, {300, 3, 70}};
  c.tokens.slots = 200;
  c.tokens.lists = ListForm::kMessy;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    c.tokens.dtype = dtype;
    c.tokens.layout = dtype == DType::kF32 ? Layout::kBSND : Layout::kTND;
    c.tokens.index_dtype = dtype == DType::kF32 ? DType::kI64 : DType::kI32;
    c.tokens.block_size = dtype == DType::kF16 ? 8 : 1;
    cases.push_back(c);
  }
  c.tokens.dtype = DType::kBF16;
  for (const int64_t heads : {12, 16}) {  // with these numbers, some levels have kernels that read keys in place
    c.heads = heads;
    cases.push_back(c);
  }
  return cases;
}

/// Runs the plan twice with one workspace, then counts the allocations of further runs.
template <typename Args>
void ExpectNoAllocation(const Result<PlanFor<Args>>& plan, const Args& args) {
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Workspace workspace;
  ASSERT_TRUE(plan->Run(args, workspace).ok());
  EXPECT_LE(plan->info().workspace_bytes, workspace.size());
  EXPECT_EQ(plan->info().workspace_bytes, plan->workspace_bytes());
  for (int run = 0; run < 3; ++run) {
    const int64_t before = Allocations();
    const Status status = plan->Run(args, workspace);
    EXPECT_EQ(Allocations(), before) << "run " << run;
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(SparsePlan, FewHeadsReadKeysInPlaceAndOthersGatherThem) {
  for (const auto& [heads, says] : {std::pair{2, "where they lie"}, {40, "gathered rows of"}}) {
    const SparseCall call(SparseCase{.heads = heads});
    const auto plan = PlanSparseFlashAttention(call.args(), call.options(), ContextOf(IsaLevels().front()));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_NE(plan->info().reason.find(says), std::string::npos) << plan->info().reason;
  }
}

TEST_P(SparsePlanRun, AllocatesNothingFromTheSecondCallOn) {
  const auto [isa, threads] = GetParam();
  for (const SparseCase& c : Cases()) {
    const SparseCall forward(c);
    ExpectNoAllocation(PlanSparseFlashAttention(forward.args(), forward.options(), ContextOf(isa, threads)),
                       forward.args());
    const SparseGradCall backward(c);
    ExpectNoAllocation(PlanSparseFlashAttentionGrad(backward.args(), backward.options(), ContextOf(isa, threads)),
                       backward.args());
    SparseCase paged = c;
    paged.tokens.page_rows = 16;
    const SparseCall pages(paged);
    ExpectNoAllocation(PlanSparseFlashAttention(pages.args(), pages.options(), ContextOf(isa, threads)), pages.args());
  }
}

TEST_P(SparsePlanRun, DescribesItself) {
  const auto [isa, threads] = GetParam();
  SparseCase c{.heads = 20, .d = 40, .dv = 40};
  c.tokens.lengths = {{9}, {300}};
  c.tokens.slots = 200;
  const SparseCall forward(c);
  const SparseGradCall backward(c);
  const Result<Plan> plans[] = {
      AnyPlan(PlanSparseFlashAttention(forward.args(), forward.options(), ContextOf(isa, threads))),
      AnyPlan(PlanSparseFlashAttentionGrad(backward.args(), backward.options(), ContextOf(isa, threads)))};
  double flops[2] = {};
  for (int which = 0; which < 2; ++which) {
    ASSERT_TRUE(plans[which].ok());
    const PlanInfo info = plans[which]->info();
    EXPECT_FALSE(info.isa.empty());
    EXPECT_EQ(info.workers, threads);
    EXPECT_FALSE(info.kernels.empty());
    EXPECT_GT(info.tasks, 0);
    EXPECT_FALSE(plans[which]->Describe().empty());
    flops[which] = info.flops;
  }
  // Every token sees 200 keys. The forward has two products of 40 columns, and the backward has five.
  EXPECT_EQ(flops[0], 9.0 * 20 * 200 * 2 * 2 * 40);
  EXPECT_EQ(flops[1], 9.0 * 20 * 200 * 2 * 5 * 40);
}

INSTANTIATE_TEST_SUITE_P(Isa, SparsePlanRun,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
