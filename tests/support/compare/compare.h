#ifndef FA_TESTS_SUPPORT_COMPARE_H_
#define FA_TESTS_SUPPORT_COMPARE_H_

#include <gtest/gtest.h>

#include "support/cases/forward_problem.h"

namespace fa::test {

/// Whether every output is within ForwardTolerance of the reference on `problem.values()`. Rows without keys, tails and
/// zeros must be exact; NaN and inf must stand where the reference has them. A row whose sum is NaN in the reference
/// has NaN for maximum and lse too.
[[nodiscard]] ::testing::AssertionResult MatchesReference(const ForwardProblem& problem);
[[nodiscard]] ::testing::AssertionResult MatchesReference(const ForwardProblem& problem,
                                                          const reference::ForwardResult& want);

/// The same bits everywhere; any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const ForwardOutputs& a, const ForwardOutputs& b);

/// Runs the case on `context` and checks status, reference, and that nothing but the outputs was written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardCase& c, Context* context);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardProblem& problem, Context* context);
/// Check on every instruction-set level of this CPU, with one computation of the reference.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardCase& c, int threads = 2);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardProblem& problem, int threads = 2);

/// Outputs of a run that must succeed.
[[nodiscard]] ForwardOutputs OutputsOf(const ForwardProblem& problem, Context* context);
[[nodiscard]] ForwardOutputs OutputsOf(const ForwardCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_COMPARE_H_
