#ifndef FA_TESTS_SUPPORT_COMPARE_H_
#define FA_TESTS_SUPPORT_COMPARE_H_

#include <gtest/gtest.h>

#include "support/cases/forward_problem.h"

namespace fa::test {

/// Returns whether every output is within ForwardTolerance of the reference on `problem.values()`. Zeros, rows without
/// keys, and rows after the last TND sequence must be exact. NaN and inf must be where the reference has them. If the
/// reference's sum of a row is NaN, maximum and lse must be NaN too.
[[nodiscard]] ::testing::AssertionResult MatchesReference(const ForwardProblem& problem);
[[nodiscard]] ::testing::AssertionResult MatchesReference(const ForwardProblem& problem,
                                                          const reference::ForwardResult& want);

/// Returns whether all outputs have the same bits. Any NaN equals any other.
[[nodiscard]] ::testing::AssertionResult SameBits(const ForwardOutputs& a, const ForwardOutputs& b);

/// Runs the case on `context`. Checks the status and the outputs, and that nothing else was written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardCase& c, Context* context);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardProblem& problem, Context* context);
/// Runs the case on every instruction-set level of this CPU, with the same checks. The reference is computed once.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardCase& c, int threads = 2);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const ForwardProblem& problem, int threads = 2);

/// Returns the outputs of a run that must succeed.
[[nodiscard]] ForwardOutputs OutputsOf(const ForwardProblem& problem, Context* context);
[[nodiscard]] ForwardOutputs OutputsOf(const ForwardCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_COMPARE_H_
