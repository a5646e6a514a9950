#ifndef FA_TESTS_SUPPORT_COMPARE_GRADIENTS_H_
#define FA_TESTS_SUPPORT_COMPARE_GRADIENTS_H_

#include <gtest/gtest.h>

#include "support/cases/backward_problem.h"

namespace fa::test {

/// Returns whether every gradient is within `expected.allowed` of `expected.want`. Sums of no terms, and rows after the
/// last TND sequence, must be exactly 0. NaN and inf must be where the reference has them.
[[nodiscard]] ::testing::AssertionResult MatchesReference(const BackwardOutputs& got,
                                                          const ExpectedGradients& expected);

/// Returns whether all gradients have the same bits. Any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const BackwardOutputs& a, const BackwardOutputs& b);

/// Runs the case on `context`. Checks the status and the gradients, and that nothing else was written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const BackwardProblem& problem,
                                                              const ExpectedGradients& expected, Context* context);
/// Runs the case on every instruction-set level, with the same checks. The reference is computed once.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const BackwardProblem& problem, int threads = 2);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const BackwardCase& c, int threads = 2);

/// Returns the gradients of a run that must succeed.
[[nodiscard]] BackwardOutputs OutputsOf(const BackwardProblem& problem, Context* context);
[[nodiscard]] BackwardOutputs OutputsOf(const BackwardCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_COMPARE_GRADIENTS_H_
