#include "support/compare/gradient_tolerance.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "reference/scores.h"
#include "support/tensor.h"

namespace fa::test {
namespace {

using reference::PseType;

constexpr double kUnit = 0x1p-24;
constexpr double kFlushed = static_cast<double>(FLT_MIN);

/// Returns the error of a sum of n products, relative to the sum of the products' magnitudes.
double OfSum(int64_t n) { return kUnit * (4 * std::sqrt(static_cast<double>(n)) + 8); }

/// The relative errors of a value, such as dS, that is multiplied and added up. `systematic` is the value's own error
/// plus the error of the additions. `rounding` is the value's rounding to a 16-bit type.
struct Factor {
  double systematic = 0;
  double rounding = 0;
  /// The error if a subnormal product or sum is taken as 0.
  double flushed = 0;
};

/// The errors of one gradient. `linear` adds up errors that may all have one sign. `squares` adds up the squares of
/// independent errors.
struct Errors {
  explicit Errors(const std::vector<double>& like) : linear(like.size()), squares(like.size()) {}
  void Add(int64_t first, const Factor& factor, const double* x, int64_t size) {
    for (int64_t c = 0; c < size; ++c) {
      const double magnitude = std::fabs(x[c]);
      linear[first + c] += factor.systematic * magnitude + factor.flushed;
      squares[first + c] += factor.rounding * factor.rounding * magnitude * magnitude;
    }
  }
  /// Returns the bound of each element, which includes the rounding of the gradient itself.
  [[nodiscard]] std::vector<double> Allowed(const std::vector<double>& exact, DType dtype) const {
    std::vector<double> allowed(exact.size());
    for (size_t x = 0; x < exact.size(); ++x) {
      const double error = linear[x] + 4 * std::sqrt(squares[x]);
      if (error == 0) continue;
      allowed[x] = error + reference::UnitRoundoff(FormatOf(dtype)) * std::fabs(exact[x]) +
                   reference::SmallestError(FormatOf(dtype));
    }
    return allowed;
  }

  std::vector<double> linear, squares;
};

class ToleranceOfRows {
 public:
  ToleranceOfRows(const BackwardValues& values, DType dtype, const reference::Gradients& exact)
      : p_(values.problem),
        forward_(values.forward),
        d_out_(values.d_out),
        format_(FormatOf(dtype)),
        score_unit_(OfSum(p_.d + p_.d_rope)),
        exp_relative_(dtype == DType::kF32 ? 4 * kUnit : 4e-6),
        flushed_(dtype == DType::kBF16 ? kFlushed : 0),
        dq_(exact.dq),
        dk_(exact.dk),
        dv_(exact.dv),
        dq_rope_(exact.dq_rope),
        dk_rope_(exact.dk_rope),
        dpse_(exact.dpse),
        dslopes_(exact.dslopes),
        dsink_(exact.dsink) {}

  void Add(int64_t b, int64_t n, int64_t i) {
    const int64_t statistic = p_.QueryRow(b, n, i, 1);
    const double max = forward_.max[statistic], sum = forward_.sum[statistic];
    if (p_.lengths.sk[b] == 0 || sum == static_cast<double>(FLT_MAX)) return;
    if (std::isinf(max)) return;  // an infinite sink takes all the weight and adds nothing
    const int64_t o = p_.QueryRow(b, n, i, p_.dv);
    double delta_magnitude = 0;
    const double delta = reference::Dot<double>(&d_out_[o], &forward_.out[o], p_.dv, 0, &delta_magnitude);
    const double shift = 4 * kUnit * (std::fabs(max) + std::fabs(std::log(sum)));
    const int64_t at = p_.SinkIndex(b, n, i);
    if (!p_.sink.empty() && std::isfinite(p_.sink[at])) {
      const double probability = std::exp(p_.sink[at] - max) / sum;
      const double relative = shift + 4 * kUnit * std::fabs(p_.sink[at]) + OfSum(p_.batch() * p_.lengths.sq[b]);
      dsink_.linear[at] += probability * (relative * std::fabs(delta) + OfSum(p_.dv) * delta_magnitude);
    }

    reference::ScoresOfRow<double>(p_, b, n, i, &scores_);
    for (const auto& score : scores_) {
      const int64_t v = p_.KeyRow(b, n / (p_.heads / p_.heads_kv), score.key, p_.dv);
      const double probability = std::exp(score.value - max) / sum;
      const double relative = score_unit_ * score.magnitude + 8 * kUnit * p_.softcap + exp_relative_ + shift;
      double dp_magnitude = 0;
      const double dp = score.drop * reference::Dot<double>(&d_out_[o], &p_.v[v], p_.dv, 0, &dp_magnitude);
      const double magnitude = score.drop * dp_magnitude + delta_magnitude;
      const double ds = probability * (dp - delta);
      const double ds_error = relative * std::fabs(ds) + probability * OfSum(p_.dv) * magnitude +
                              4 * kUnit * std::fabs(ds) + kFlushed * magnitude;
      const double dropped = score.drop * probability;
      const Factor of_values{.systematic = (relative + OfSum(RowsOfKey(b))) * dropped + kFlushed * score.drop,
                             .rounding = Rounding(dropped),
                             .flushed = flushed_};
      if (score.drop != 0) dv_.Add(v, of_values, &d_out_[o], p_.dv);
      AddScore(b, n, i, score, ds, ds_error);
    }
  }

  [[nodiscard]] reference::Gradients Allowed(const reference::Gradients& exact, DType dtype, DType pse_dtype) const {
    return {.dq = dq_.Allowed(exact.dq, dtype),
            .dk = dk_.Allowed(exact.dk, dtype),
            .dv = dv_.Allowed(exact.dv, dtype),
            .dq_rope = dq_rope_.Allowed(exact.dq_rope, dtype),
            .dk_rope = dk_rope_.Allowed(exact.dk_rope, dtype),
            .dpse = dpse_.Allowed(exact.dpse, pse_dtype),
            .dslopes = dslopes_.Allowed(exact.dslopes, DType::kF32),
            .dsink = dsink_.Allowed(exact.dsink, DType::kF32)};
  }

 private:
  /// Returns the number of rows that may add to the gradients of one key.
  [[nodiscard]] int64_t RowsOfKey(int64_t b) const { return p_.lengths.sq[b] * (p_.heads / p_.heads_kv); }

  [[nodiscard]] double Rounding(double x) const {
    if (format_ == reference::Format::kF32) return 0;
    return reference::UnitRoundoff(format_) * std::fabs(x) + std::max(reference::SmallestError(format_), flushed_);
  }

  void AddScore(int64_t b, int64_t n, int64_t i, const reference::Score<double>& score, double ds, double ds_error) {
    if (!p_.pse.empty()) {
      const double factor = p_.pse_type == PseType::kAddThenScale ? std::fabs(p_.scale) : 1;
      const double one = factor * (ds_error + OfSum(p_.batch() * p_.lengths.sq[b]) * std::fabs(ds));
      dpse_.linear[PseIndex(p_, b, n, i, score.key)] += one;
    }
    if (!p_.slopes.empty()) {
      const double one = ds_error + OfSum(p_.batch() * p_.lengths.sq[b] * p_.lengths.sk[b]) * std::fabs(ds);
      dslopes_.linear[b * p_.heads + n] += one * score.distance;
    }
    double product = ds * score.cap_slope;
    double error = ds_error * score.cap_slope;
    if (p_.softcap > 0) {
      error += std::fabs(ds) * 2 * (8 * kUnit + score_unit_ * score.magnitude / p_.softcap);
    }
    product *= std::fabs(p_.scale);
    error *= std::fabs(p_.scale);
    const double rounding = std::fabs(p_.scale) * Rounding(ds * score.cap_slope);
    const double flushed = flushed_ * std::max(1.0, std::fabs(p_.scale));
    const auto factor = [&](int64_t count) {
      return Factor{.systematic = error + OfSum(count) * std::fabs(product), .rounding = rounding, .flushed = flushed};
    };
    const int64_t n_kv = n / (p_.heads / p_.heads_kv);
    const Factor of_row = factor(static_cast<int64_t>(scores_.size())), of_key = factor(RowsOfKey(b));
    const int64_t q = p_.QueryRow(b, n, i, p_.d);
    const int64_t k = p_.KeyRow(b, n_kv, score.key, p_.d);
    dq_.Add(q, of_row, &p_.k[k], p_.d);
    dk_.Add(k, of_key, &p_.q[q], p_.d);
    if (p_.d_rope == 0) return;
    const int64_t q_rope = p_.QueryRow(b, n, i, p_.d_rope);
    const int64_t k_rope = p_.KeyRow(b, n_kv, score.key, p_.d_rope);
    dq_rope_.Add(q_rope, of_row, &p_.k_rope[k_rope], p_.d_rope);
    dk_rope_.Add(k_rope, of_key, &p_.q_rope[q_rope], p_.d_rope);
  }

  const reference::Problem& p_;
  const reference::ForwardResult& forward_;
  const std::vector<double>& d_out_;
  reference::Format format_;
  double score_unit_;  ///< error of a score whose terms' magnitudes add up to 1
  double exp_relative_;
  double flushed_;
  Errors dq_, dk_, dv_, dq_rope_, dk_rope_, dpse_, dslopes_, dsink_;
  std::vector<reference::Score<double>> scores_;
};

}  // namespace

reference::Gradients GradientTolerance(const BackwardValues& values, DType dtype, DType pse_dtype,
                                       const reference::Gradients& exact) {
  ToleranceOfRows rows(values, dtype, exact);
  const reference::Problem& p = values.problem;
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) rows.Add(b, n, i);
    }
  }
  return rows.Allowed(exact, dtype, pse_dtype);
}

}  // namespace fa::test
