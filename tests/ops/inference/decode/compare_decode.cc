// Compares results of decode calls with the reference.
#include "ops/inference/decode/decode_case.h"
#include "support/compare/agrees.h"
#include "support/compare/tolerance.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Returns the unit roundoff with which a call may round the operands of its products, or 0 if it does not round them.
/// Only kernels that read compressed keys in place round them: those for few rows of a 16-bit type, on levels with
/// 16-bit products. Operands of int8 and int4 become integers of up to 2^15 times a unit. The largest of them is taken
/// as at most 8 times a typical one.
double OperandUnit(const DecodeCase& c, Isa isa) {
  const ForwardCase& d = c.dense;
  const int64_t rows = d.heads / d.heads_kv * d.max_sq();
  const bool in_place = d.d % 32 == 0 && d.d <= 256 && d.dv % 32 == 0 && d.dv <= 256;
  if (c.quantization == Quantization::kNone || !in_place || rows > 8) return 0;
  if (c.format == DType::kI8 || c.format == DType::kI4x8) {
    return d.dtype != DType::kF32 && Includes(isa, Isa::kAvx512Vnni) ? 0x1p-13 : 0;
  }
  return d.dtype == DType::kBF16 && Includes(isa, Isa::kAvx512Bf16) ? 0x1p-9 : 0;
}

/// Returns the head to which `row` belongs. Rows are counted in the order [sequence][head][row].
int64_t HeadOfRow(const reference::Problem& p, int64_t row) {
  for (int64_t b = 0;; ++b) {
    const int64_t rows = p.heads * p.lengths.sq[b];
    if (row < rows) return row / p.lengths.sq[b];
    row -= rows;
  }
}

}  // namespace

AssertionResult MatchesReference(const DecodeProblem& problem, Isa isa, const reference::ForwardResult& want) {
  const DecodeCase& c = problem.decode_case();
  const ForwardOutputs got = problem.Outputs();
  const ForwardTolerance tolerance(problem.values(), want, c.dense.dtype, OperandUnit(c, isa));
  const auto differs = [&](const char* what, size_t at, double is, double wanted, double allowed) {
    if (Agrees(is, wanted, allowed)) return AssertionSuccess();
    return AssertionFailure() << what << "[" << at << "] = " << is << ", want " << wanted << " +- " << allowed << "\n "
                              << c;
  };
  for (size_t x = 0; x < want.out.size(); ++x) {
    const auto at = static_cast<int64_t>(x);
    const int64_t row = at / c.dense.dv, column = at % c.dense.dv;
    double wanted = want.out[x], allowed = want.magnitudes.keys[row] == 0 ? 0 : tolerance.Out(row, at);
    if (c.int8_out) {
      const int64_t head = HeadOfRow(problem.values(), row);
      allowed = problem.output_scales().Tolerance(wanted, allowed, head, column);
      wanted = problem.output_scales().Quantized(wanted, head, column);
    }
    if (auto result = differs("out", x, got.out[x], wanted, allowed); !result) return result;
  }
  for (size_t x = 0; x < want.lse.size(); ++x) {
    const double allowed = want.magnitudes.keys[x] == 0 ? 0 : tolerance.Lse(static_cast<int64_t>(x));
    if (auto result = differs("lse", x, got.lse[x], want.lse[x], allowed); !result) return result;
  }
  for (size_t x = 0; x < got.tail.size(); ++x) {
    if (auto result = differs("tail", x, got.tail[x], 0, 0); !result) return result;
  }
  return AssertionSuccess();
}

AssertionResult RunsLikeTheReference(const DecodeProblem& problem) {
  const reference::ForwardResult want = reference::Forward(problem.values());
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    const Status status = problem.Run(ContextOf(isa));
    AssertionResult result =
        status.ok() ? MatchesReference(problem, isa, want) : AssertionFailure() << status.message();
    if (result && before.FirstChange() >= 0) result = AssertionFailure() << "a buffer was overwritten";
    if (!result) return result << "\n " << problem.decode_case() << ", " << IsaName(isa);
  }
  return AssertionSuccess();
}

AssertionResult RunsLikeTheReference(const DecodeCase& c) { return RunsLikeTheReference(DecodeProblem(c)); }

ForwardOutputs OutputsOf(const DecodeProblem& problem, Context* context) {
  const Status status = problem.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << problem.decode_case();
  return problem.Outputs();
}

ForwardOutputs OutputsOf(const DecodeCase& c, Context* context) { return OutputsOf(DecodeProblem(c), context); }

}  // namespace fa::test
