#include "support/compare/compare_gradients.h"

#include <bit>
#include <cmath>

#include "support/compare/agrees.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

struct Named {
  const char* name;
  std::vector<double> reference::Gradients::*values;
};

constexpr Named kGradients[] = {
    {"dq", &reference::Gradients::dq},           {"dk", &reference::Gradients::dk},
    {"dv", &reference::Gradients::dv},           {"dq_rope", &reference::Gradients::dq_rope},
    {"dk_rope", &reference::Gradients::dk_rope}, {"dpse", &reference::Gradients::dpse},
    {"dslopes", &reference::Gradients::dslopes}, {"dsink", &reference::Gradients::dsink}};

AssertionResult SameBits(const char* name, const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return AssertionFailure() << name << " has " << a.size() << " and " << b.size() << " elements";
  }
  for (size_t x = 0; x < a.size(); ++x) {
    if (std::isnan(a[x]) && std::isnan(b[x])) continue;
    if (std::bit_cast<uint64_t>(a[x]) != std::bit_cast<uint64_t>(b[x])) {
      return AssertionFailure() << name << '[' << x << "] = " << a[x] << " and " << b[x] << ", apart by "
                                << a[x] - b[x];
    }
  }
  return AssertionSuccess();
}

}  // namespace

AssertionResult MatchesReference(const BackwardOutputs& got, const ExpectedGradients& expected) {
  for (const Named& gradient : kGradients) {
    const std::vector<double>& values = got.gradients.*gradient.values;
    const std::vector<double>& want = expected.want.*gradient.values;
    const std::vector<double>& allowed = expected.allowed.*gradient.values;
    if (values.empty()) continue;  // this gradient was not asked for
    if (values.size() != want.size()) {
      return AssertionFailure() << gradient.name << " has " << values.size() << " elements, want " << want.size();
    }
    for (size_t x = 0; x < want.size(); ++x) {
      if (Agrees(values[x], want[x], allowed[x])) continue;
      return AssertionFailure() << gradient.name << '[' << x << "] = " << values[x] << ", want " << want[x] << " +- "
                                << allowed[x] << " (off by " << values[x] - want[x] << ")";
    }
  }
  for (size_t x = 0; x < got.tail.size(); ++x) {
    if (got.tail[x] != 0) return AssertionFailure() << "tail[" << x << "] = " << got.tail[x] << ", want 0";
  }
  return AssertionSuccess();
}

AssertionResult SameBits(const BackwardOutputs& a, const BackwardOutputs& b) {
  for (const Named& gradient : kGradients) {
    AssertionResult same = SameBits(gradient.name, a.gradients.*gradient.values, b.gradients.*gradient.values);
    if (!same) return same;
  }
  return SameBits("tail", a.tail, b.tail);
}

AssertionResult RunsLikeTheReference(const BackwardProblem& problem, const ExpectedGradients& expected,
                                     Context* context) {
  const Snapshot before = problem.TakeSnapshot();
  const Status status = problem.Run(context);
  const auto failure = [&] {
    return AssertionFailure() << problem.backward_case() << "\n " << Name(context->isa()) << ", " << context->threads()
                              << " threads: ";
  };
  if (!status.ok()) return failure() << status.message();
  if (const int64_t byte = before.FirstChange(); byte >= 0) {
    return failure() << "byte " << byte << " of a buffer was overwritten";
  }
  const AssertionResult matches = MatchesReference(problem.Outputs(), expected);
  return matches ? matches : failure() << matches.message();
}

AssertionResult RunsLikeTheReference(const BackwardProblem& problem, int threads) {
  const ExpectedGradients expected = ExpectGradients(problem.backward_case(), problem.values());
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    AssertionResult runs = RunsLikeTheReference(problem, expected, ContextOf(isa, threads));
    if (!runs) return runs;
  }
  return AssertionSuccess();
}

AssertionResult RunsLikeTheReference(const BackwardCase& c, int threads) {
  return RunsLikeTheReference(BackwardProblem(c), threads);
}

BackwardOutputs OutputsOf(const BackwardProblem& problem, Context* context) {
  const Status status = problem.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << problem.backward_case();
  return problem.Outputs();
}

BackwardOutputs OutputsOf(const BackwardCase& c, Context* context) { return OutputsOf(BackwardProblem(c), context); }

}  // namespace fa::test
