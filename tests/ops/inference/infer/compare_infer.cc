// Compares results of fused inference with the reference.
#include <cmath>

#include "ops/inference/infer/infer_case.h"
#include "support/compare/agrees.h"
#include "support/compare/tolerance.h"
#include "support/execution/contexts.h"

namespace fa::test {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

AssertionResult MatchesReference(const InferProblem& problem, const reference::ForwardResult& want) {
  const InferCase& c = problem.infer_case();
  const ForwardOutputs got = problem.Outputs();
  const ForwardTolerance tolerance(problem.values(), want, c.dense.dtype);
  const auto differs = [&](const char* what, size_t at, double is, double wanted, double allowed) {
    if (Agrees(is, wanted, allowed)) return AssertionSuccess();
    return AssertionFailure() << what << "[" << at << "] = " << is << ", want " << wanted << " +- " << allowed;
  };
  const auto has_keys = [&](size_t row) { return want.magnitudes.keys[row] > 0; };
  if (got.out.size() != want.out.size() || got.lse.size() != want.lse.size()) {
    return AssertionFailure() << "outputs of another size than the reference's";
  }
  for (size_t x = 0; x < want.out.size(); ++x) {
    const auto at = static_cast<int64_t>(x);
    const int64_t row = at / c.dense.dv;
    const double allowed = has_keys(static_cast<size_t>(row)) ? tolerance.Out(row, at) : 0;
    if (auto result = differs("out", x, got.out[x], want.out[x], allowed); !result) return result;
  }
  for (size_t x = 0; x < want.lse.size(); ++x) {
    const bool minus_inf = std::isinf(want.lse[x]) && want.lse[x] < 0;
    const double wanted = minus_inf ? static_cast<double>(c.lse_without_keys) : want.lse[x];
    const double allowed = has_keys(x) ? tolerance.Lse(static_cast<int64_t>(x)) : 0;
    if (auto result = differs("lse", x, got.lse[x], wanted, allowed); !result) return result;
  }
  const double tail_lse = c.lse_without_keys > 0 ? static_cast<double>(c.lse_without_keys) : 0;
  for (size_t x = 0; x < got.tail.size(); ++x) {
    const bool is_lse = x % static_cast<size_t>(c.dense.dv + 1) == 0;
    if (auto result = differs("tail", x, got.tail[x], is_lse ? tail_lse : 0, 0); !result) return result;
  }
  return AssertionSuccess();
}

AssertionResult RunsLikeTheReference(const InferCase& c) {
  const InferProblem problem(c);
  const reference::ForwardResult want = reference::Forward(problem.values());
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    const Status status = problem.Run(ContextOf(isa));
    AssertionResult result = status.ok() ? MatchesReference(problem, want) : AssertionFailure() << status.message();
    if (result && before.FirstChange() >= 0) result = AssertionFailure() << "a buffer was overwritten";
    if (!result) return result << "\n " << c << ", " << IsaName(isa);
  }
  return AssertionSuccess();
}

ForwardOutputs OutputsOf(const InferCase& c, Context* context) {
  const InferProblem problem(c);
  problem.TakeSnapshot().Forget();
  const Status status = problem.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return problem.Outputs();
}

}  // namespace fa::test
