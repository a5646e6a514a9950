#ifndef FA_TESTS_SUPPORT_SHUFFLED_PLAN_H_
#define FA_TESTS_SUPPORT_SHUFFLED_PLAN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>

#include "fa/plan.h"
#include "support/compare/compare.h"
#include "support/execution/context_on.h"
#include "support/execution/contexts.h"
#include "support/execution/shuffled_executor.h"
#include "support/guarded_buffer.h"

namespace fa::test {

/// Runs the plan of a problem `orders` times, and expects the bits of `usual` each time. The tasks run in random valid
/// orders, each as one of three workers, and the workspace begins as NaN. The problem has MakePlan, args, ForgetOutputs
/// and Outputs.
/// @param least_tasks  the test fails if the plan has fewer tasks, because it would show nothing
template <typename Problem, typename Outputs, typename Case>
void ExpectBitsInAnyOrder(const Problem& problem, const Outputs& usual, Isa isa, int orders, int64_t least_tasks,
                          const Case& shown) {
  static constexpr int kWorkers = 3;
  const std::unique_ptr<Context> context =
      ContextOn([] { return std::make_unique<ShuffledExecutor>(4711, kWorkers); }, isa, kWorkers);
  const auto plan = problem.MakePlan(context.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_GE(plan->info().tasks, least_tasks);
  for (int order = 0; order < orders; ++order) {
    problem.ForgetOutputs();
    const GuardedBuffer workspace(plan->workspace_bytes());
    const Status status = plan->Run(problem.args(), std::span(workspace.data(), workspace.size()));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(SameBits(usual, problem.Outputs())) << "order " << order << shown;
  }
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SHUFFLED_PLAN_H_
