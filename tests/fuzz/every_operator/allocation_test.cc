// From the second run of a plan on, no operator allocates in Run. The test is a separate binary because it replaces
// operator new.
#include <gtest/gtest.h>

#include "fuzz/calls/families.h"
#include "support/allocation_counter.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class PlanRun : public EveryOperator {};

TEST_P(PlanRun, AllocatesNothingFromTheSecondCallOn) {
  for (uint64_t seed = 501; seed < 506; ++seed) {
    const std::unique_ptr<FuzzCall> call = GetParam().make(seed);
    for (const int threads : {1, 2}) {
      const Result<FuzzCall::PlannedRun> run_plan = call->PlanRuns(ContextOf(DetectIsa(), threads));
      ASSERT_TRUE(run_plan.ok()) << run_plan.status().message();
      Workspace workspace;
      ASSERT_TRUE((*run_plan)(workspace).ok());
      for (int run = 0; run < 3; ++run) {
        const int64_t before = Allocations();
        const Status status = (*run_plan)(workspace);
        EXPECT_EQ(Allocations(), before) << threads << " threads, run " << run << "\n " << call->Describe();
        ASSERT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlanRun, ::testing::ValuesIn(std::span(kFamilies).first(kFamiliesWithPlans)), FamilyName);

}  // namespace
}  // namespace fa::test
