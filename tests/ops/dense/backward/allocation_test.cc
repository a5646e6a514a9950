// From the second run of a plan on, Run allocates nothing. The test is its own binary because it replaces operator new.
#include <gtest/gtest.h>

#include "support/allocation_counter.h"
#include "support/cases/backward_problem.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

TEST(AllocationCounter, SeesTheLibrary) {
  const BackwardProblem problem{BackwardCase{}};
  const AttentionGradArgs args = problem.args();
  const AttentionOptions options = problem.options();
  Context* context = ContextOf(DetectIsa(), 1);
  const int64_t before = Allocations();
  ASSERT_TRUE(PlanFlashAttentionGrad(args, options, context).ok());
  EXPECT_GT(Allocations(), before) << "the library's operator new is not this one";
}

struct Named {
  const char* name;
  BackwardCase c;
};

std::vector<Named> Cases() {
  std::vector<Named> cases;
  BackwardCase c;
  ForwardCase& f = c.forward;
  cases.push_back({"OneTile", c});
  f.heads = 4;
  f.heads_kv = 2;
  f.d = f.dv = 32;
  f.lengths = EqualLengths(2, 300, 300);
  f.mask.mode = 3;
  cases.push_back({"ManyTiles", c});
  f.dtype = DType::kBF16;
  f.pse = PseForm::kSlopes;
  f.pse_type = reference::PseType::kSlopes;
  cases.push_back({"Slopes", c});
  f.dtype = DType::kF16;
  f.pse = PseForm::kFull;
  f.pse_type = reference::PseType::kScaleThenAdd;
  f.pse_broadcast_batch = true;
  f.dense_mask = MaskForm::kPlane;
  f.dropout = DropoutForm::kSeed;
  f.keep_prob = 0.9F;
  f.sink = true;
  f.softcap = 5;
  f.d_rope = 16;
  f.padding = c.padding = {.inner = 3, .middle = 3, .outer = 3};
  cases.push_back({"EveryPass", c});
  c = {};
  f.layout = Layout::kTND;
  f.lengths = {{5, 0, 200, 1}, {7, 3, 300, 0}};
  f.tail_q = 9;
  f.pse = PseForm::kRow;
  f.pse_type = reference::PseType::kAddThenScale;
  f.dropout = DropoutForm::kMask;
  f.keep_prob = 0.9F;
  cases.push_back({"Packed", c});
  return cases;
}

class GradPlanRunAllocatesNothing : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

TEST_P(GradPlanRunAllocatesNothing, FromTheSecondCallOn) {
  const auto [isa, threads] = GetParam();
  for (const Named& named : Cases()) {
    const BackwardProblem problem(named.c);
    const AttentionGradArgs args = problem.args();
    const auto plan = problem.MakePlan(ContextOf(isa, threads));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Workspace workspace;
    ASSERT_TRUE(plan->Run(args, workspace).ok());
    for (int run = 0; run < 5; ++run) {
      const int64_t before = Allocations();
      const Status status = plan->Run(args, workspace);
      EXPECT_EQ(Allocations(), before) << named.name << " run " << run;
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(plan->Run(args).ok());
    const int64_t before = Allocations();
    const Status status = plan->Run(args);
    EXPECT_EQ(Allocations(), before) << named.name << " with the context's workspace";
    ASSERT_TRUE(status.ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, GradPlanRunAllocatesNothing,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
