#include "support/cases/backward_case.h"

#include <ostream>

#include "support/cases/random_values.h"
#include "support/compare/gradient_tolerance.h"

namespace fa::test {
namespace {

void Round(DType dtype, std::vector<double>* values) {
  for (double& value : *values) value = RoundTo(dtype, value);
}

/// Replaces values [B, N] by their sums over the batch, [N].
void SumOverBatch(int64_t heads, std::vector<double>* values) {
  if (values->empty()) return;
  std::vector<double> sums(static_cast<size_t>(heads));
  for (size_t x = 0; x < values->size(); ++x) sums[x % sums.size()] += (*values)[x];
  *values = sums;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const BackwardCase& c) {
  return out << c.forward << " optional_gradients=" << c.optional_gradients
             << " eight_statistics=" << c.eight_statistics << " gradient_packing=" << static_cast<int>(c.packing)
             << " gradient_padding=" << c.padding.inner << ',' << c.padding.middle << ',' << c.padding.outer;
}

BackwardValues MakeBackwardValues(const BackwardCase& c, const reference::Problem& problem) {
  const ForwardCase& f = c.forward;
  BackwardValues values{.problem = problem, .forward = reference::Forward(problem), .d_out = {}};
  values.d_out.reserve(values.forward.out.size());
  Round(f.dtype, &values.forward.out);
  Round(DType::kF32, &values.forward.max);
  Round(DType::kF32, &values.forward.sum);
  for (int64_t b = 0; b < f.batch(); ++b) {
    for (int64_t n = 0; n < f.heads; ++n) {
      for (int64_t i = 0; i < f.lengths.sq[b]; ++i) {
        const RandomLine line(f.seed, Tag::kDOut, {f.first_sequence + b, n, i});
        for (int64_t x = 0; x < f.dv; ++x) values.d_out.push_back(RoundTo(f.dtype, line.Normal(x)));
      }
    }
  }
  return values;
}

BackwardValues MakeBackwardValues(const BackwardCase& c) {
  return MakeBackwardValues(c, MakeReferenceProblem(c.forward));
}

ExpectedGradients ExpectGradients(const BackwardCase& c, const BackwardValues& values) {
  const ForwardCase& f = c.forward;
  ExpectedGradients expected{.want = reference::Backward(values.problem, values.forward, values.d_out), .allowed = {}};
  expected.allowed = GradientTolerance(values, f.dtype, c.pse_dtype(), expected.want);
  if (f.pse_broadcast_batch) {
    SumOverBatch(f.heads, &expected.want.dslopes);
    SumOverBatch(f.heads, &expected.allowed.dslopes);
  }
  return expected;
}

}  // namespace fa::test
