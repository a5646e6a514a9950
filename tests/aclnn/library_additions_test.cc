// Tests parts of libfa's public interface that exist for the aclnn interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fa/merge.h"
#include "support/cases/forward_problem.h"
#include "support/compare/compare.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

TEST(PlanRun, InMemoryOfTheCallersGivesTheSameBits) {
  ForwardCase c;
  c.lengths = EqualLengths(1, 300, 300);
  const ForwardProblem problem(c);
  const auto plan = problem.MakePlan(nullptr);
  ASSERT_TRUE(plan.ok());
  const ForwardOutputs want = OutputsOf(problem, nullptr);
  problem.ForgetOutputs();
  std::vector<std::byte> memory(plan->workspace_bytes() + 64);
  std::byte* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  ASSERT_TRUE(plan->Run(problem.args(), {aligned, plan->workspace_bytes()}).ok());
  EXPECT_TRUE(SameBits(want, problem.Outputs()));
}

TEST(PlanRun, RefusesMemoryThatIsTooSmallOrNotAligned) {
  const ForwardProblem problem{ForwardCase{}};
  const auto plan = problem.MakePlan(nullptr);
  ASSERT_TRUE(plan.ok());
  std::vector<std::byte> memory(plan->workspace_bytes() + 128);
  std::byte* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  EXPECT_THAT(plan->Run(problem.args(), {aligned, plan->workspace_bytes() - 1}).message(), HasSubstr("workspace has"));
  EXPECT_THAT(plan->Run(problem.args(), {aligned + 8, plan->workspace_bytes()}).message(), HasSubstr("multiple of 64"));
}

class MergeChecks : public ::testing::Test {
 protected:
  MergeChecks() {
    for (TensorView* out : {&args_.prev_out, &args_.cur_out}) *out = {nullptr, DType::kF32, {4, 2, 8}, {}};
    for (TensorView* statistic : {&args_.prev_max, &args_.prev_sum, &args_.cur_max, &args_.cur_sum}) {
      *statistic = {nullptr, DType::kF32, {4, 2}, {}};
    }
    args_.out = {nullptr, DType::kF32, {4, 2, 8}, {}};
    args_.softmax_max = args_.softmax_sum = {nullptr, DType::kF32, {4, 2}, {}};
  }

  MergeArgs args_;
  MergeOptions options_ = {.layout = Layout::kTND};
};

TEST_F(MergeChecks, LookAtShapesWithoutAddresses) {
  EXPECT_TRUE(CheckMergePartials(args_, options_).ok());
  args_.cur_sum.shape = {4, 3};
  EXPECT_THAT(CheckMergePartials(args_, options_).message(), HasSubstr("cur_sum.shape[1]=3, want 2"));
}

TEST_F(MergeChecks, LookAtWhatOutputsShareWhereThereAreAddresses) {
  std::vector<float> memory(64);
  args_.out.data = memory.data();
  args_.cur_out.data = memory.data() + 8;
  EXPECT_THAT(CheckMergePartials(args_, options_).message(), HasSubstr("out: shares memory with cur_out"));
}

TEST_F(MergeChecks, RefuseOutputsWhoseElementsCoincide) {
  args_.out.stride = {0, 8, 1};
  EXPECT_THAT(CheckMergePartials(args_, options_).message(), HasSubstr("out.stride"));
}

}  // namespace
}  // namespace fa::test
