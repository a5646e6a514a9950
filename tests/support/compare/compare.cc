#include "support/compare/compare.h"

#include <bit>
#include <cfloat>
#include <cmath>

#include "support/compare/agrees.h"
#include "support/compare/tolerance.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Returns the indices of element `flat` of [sequence][head][row][column] as text, such as "[b=1 n=0 i=5 c=3]".
std::string PlaceOf(const reference::Problem& p, int64_t flat, int64_t columns) {
  int64_t b = 0;
  while (flat >= p.heads * p.lengths.sq[b] * columns) flat -= p.heads * p.lengths.sq[b++] * columns;
  const int64_t row = flat / columns;
  return "[b=" + std::to_string(b) + " n=" + std::to_string(row / p.lengths.sq[b]) +
         " i=" + std::to_string(row % p.lengths.sq[b]) + " c=" + std::to_string(flat % columns) + "]";
}

AssertionResult Differs(const char* what, const std::string& place, double got, double want, double tolerance) {
  return AssertionFailure() << what << place << " = " << got << ", want " << want << " +- " << tolerance << " (off by "
                            << got - want << ")";
}

/// Returns whether a statistic must be exact because its row has no keys. It is then -FLT_MAX, FLT_MAX, -inf or 0.
bool IsExact(double want) { return std::isinf(want) || want == 0 || std::fabs(want) == static_cast<double>(FLT_MAX); }

AssertionResult CompareStatistics(const ForwardProblem& problem, const reference::ForwardResult& want,
                                  const ForwardOutputs& got) {
  const ForwardTolerance tolerance(problem.values(), want, problem.forward_case().dtype);
  for (size_t row = 0; row < want.max.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    // An infinite score makes the sum NaN. The library then writes NaN as the maximum too, although the reference's
    // maximum is a number.
    const bool spoiled = std::isnan(want.sum[row]);
    struct Line {
      const char* name;
      const std::vector<double>& got;
      double want, tolerance;
    };
    const Line lines[] = {{"max", got.max, want.max[row], tolerance.Max(at)},
                          {"sum", got.sum, want.sum[row], tolerance.Sum(at)},
                          {"lse", got.lse, want.lse[row], tolerance.Lse(at)}};
    for (const Line& line : lines) {
      if (line.got.empty()) continue;
      const bool no_keys = want.magnitudes.keys[row] == 0;
      const double expected = spoiled ? want.sum[row] : line.want;
      const double allowed = no_keys && IsExact(expected) ? 0 : line.tolerance;
      if (!Agrees(line.got[row], expected, allowed)) {
        return Differs(line.name, PlaceOf(problem.values(), at, 1), line.got[row], expected, allowed);
      }
    }
  }
  return AssertionSuccess();
}

}  // namespace

AssertionResult MatchesReference(const ForwardProblem& problem, const reference::ForwardResult& want) {
  const int64_t dv = problem.forward_case().dv;
  const ForwardOutputs got = problem.Outputs();
  const ForwardTolerance tolerance(problem.values(), want, problem.forward_case().dtype);
  for (size_t x = 0; x < want.out.size(); ++x) {
    const auto at = static_cast<int64_t>(x);
    const int64_t row = at / dv;
    const double allowed = want.magnitudes.keys[row] == 0 ? 0 : tolerance.Out(row, at);
    if (!Agrees(got.out[x], want.out[x], allowed)) {
      return Differs("out", PlaceOf(problem.values(), at, dv), got.out[x], want.out[x], allowed);
    }
  }
  for (size_t x = 0; x < got.tail.size(); ++x) {
    if (got.tail[x] != 0) return AssertionFailure() << "tail[" << x << "] = " << got.tail[x] << ", want 0";
  }
  return CompareStatistics(problem, want, got);
}

namespace {

AssertionResult RunsLike(const reference::ForwardResult& want, const ForwardProblem& problem, Context* context) {
  const Snapshot before = problem.TakeSnapshot();
  const Status status = problem.Run(context);
  const std::string name = ToString(problem.forward_case());
  if (!status.ok()) return AssertionFailure() << status.message() << "\n " << name;
  if (const int64_t byte = before.FirstChange(); byte >= 0) {
    return AssertionFailure() << "byte " << byte << " of a buffer was overwritten\n " << name;
  }
  AssertionResult matches = MatchesReference(problem, want);
  if (!matches) return matches << "\n " << name;
  return matches;
}

}  // namespace

AssertionResult MatchesReference(const ForwardProblem& problem) {
  return MatchesReference(problem, reference::Forward(problem.values()));
}

AssertionResult SameBits(const ForwardOutputs& a, const ForwardOutputs& b) {
  struct Line {
    const char* name;
    const std::vector<double>&a, &b;
  };
  const Line lines[] = {{"out", a.out, b.out},
                        {"max", a.max, b.max},
                        {"sum", a.sum, b.sum},
                        {"lse", a.lse, b.lse},
                        {"tail", a.tail, b.tail}};
  for (const Line& line : lines) {
    if (line.a.size() != line.b.size()) {
      return AssertionFailure() << line.name << " has " << line.a.size() << " and " << line.b.size() << " elements";
    }
    for (size_t x = 0; x < line.a.size(); ++x) {
      if (std::isnan(line.a[x]) && std::isnan(line.b[x])) continue;
      if (std::bit_cast<uint64_t>(line.a[x]) != std::bit_cast<uint64_t>(line.b[x])) {
        return AssertionFailure() << line.name << "[" << x << "] = " << line.a[x] << " and " << line.b[x]
                                  << ", apart by " << line.a[x] - line.b[x];
      }
    }
  }
  return AssertionSuccess();
}

AssertionResult RunsLikeTheReference(const ForwardProblem& problem, Context* context) {
  return RunsLike(reference::Forward(problem.values()), problem, context);
}

AssertionResult RunsLikeTheReference(const ForwardCase& c, Context* context) {
  return RunsLikeTheReference(ForwardProblem(c), context);
}

AssertionResult RunsLikeTheReference(const ForwardCase& c, int threads) {
  return RunsLikeTheReference(ForwardProblem(c), threads);
}

AssertionResult RunsLikeTheReference(const ForwardProblem& problem, int threads) {
  const reference::ForwardResult want = reference::Forward(problem.values());
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    AssertionResult runs = RunsLike(want, problem, ContextOf(isa, threads));
    if (!runs) return runs << ", " << IsaName(isa);
  }
  return AssertionSuccess();
}

ForwardOutputs OutputsOf(const ForwardProblem& problem, Context* context) {
  const Status status = problem.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << problem.forward_case();
  return problem.Outputs();
}

ForwardOutputs OutputsOf(const ForwardCase& c, Context* context) { return OutputsOf(ForwardProblem(c), context); }

}  // namespace fa::test
