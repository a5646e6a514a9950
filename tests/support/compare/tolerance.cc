#include "support/compare/tolerance.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "support/tensor.h"

namespace fa::test {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kSixSigma = 4;

}  // namespace

ForwardTolerance::ForwardTolerance(const reference::Problem& problem, const reference::ForwardResult& exact,
                                   DType dtype, double operand_unit)
    : exact_(exact),
      format_(FormatOf(dtype)),
      score_unit_(kUnit * (kSixSigma * std::sqrt(static_cast<double>(problem.d + problem.d_rope)) + 8) +
                  kSixSigma * operand_unit * std::min(1.0, 1.5 / std::sqrt(static_cast<double>(problem.d)))),
      score_absolute_(8 * kUnit * problem.softcap),
      exp_relative_(dtype == DType::kF32 ? 4 * kUnit : 4e-6),
      operand_unit_(operand_unit) {}

double ForwardTolerance::SumRelative(int64_t row) const {
  const reference::Magnitudes& m = exact_.magnitudes;
  return score_unit_ * m.score[row] + score_absolute_ + exp_relative_ +
         kUnit * (kSixSigma * std::sqrt(m.keys[row]) + 8);
}

double ForwardTolerance::Out(int64_t row, int64_t element) const {
  const reference::Magnitudes& m = exact_.magnitudes;
  const double size = m.abs_out[element] + std::fabs(exact_.out[element]);
  // A probability below FLT_MIN may be flushed to 0.
  double tolerance = score_unit_ * m.score_out[element] + SumRelative(row) * size +
                     kUnit * (kSixSigma * std::sqrt(m.keys[row]) + 8) * size +
                     static_cast<double>(FLT_MIN) * m.keys[row] * (1 + m.largest_v[row]) +
                     kSixSigma * operand_unit_ * m.rms_out[element];
  if (format_ != reference::Format::kF32) {
    const double unit = reference::UnitRoundoff(format_);
    const double smallest = reference::SmallestError(format_);
    tolerance += kSixSigma * unit * m.rms_out[element] + unit * std::fabs(exact_.out[element]) + smallest +
                 kSixSigma * smallest * std::sqrt(m.keys[row]) * m.largest_v[row];
  }
  return tolerance;
}

double ForwardTolerance::Max(int64_t row) const {
  if (std::isinf(exact_.max[row])) return 0;  // an infinite sink takes the whole weight of the row
  return score_unit_ * exact_.magnitudes.score_near[row] + score_absolute_ + 4 * kUnit * std::fabs(exact_.max[row]);
}

double ForwardTolerance::Sum(int64_t row) const { return (SumRelative(row) + Max(row)) * exact_.sum[row]; }

double ForwardTolerance::Lse(int64_t row) const {
  if (exact_.magnitudes.keys[row] == 0) return 4 * kUnit * std::fabs(exact_.max[row]);
  return SumRelative(row) + Max(row) + 4 * kUnit * std::fabs(exact_.lse[row]);
}

}  // namespace fa::test
