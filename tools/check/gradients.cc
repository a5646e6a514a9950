#include "check/gradients.h"

#include <cmath>

#include "check/element.h"

namespace fa::check {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kFlushed = 0x1p-126;

struct Product {
  double value = 0;
  double terms = 0;  // the sum of the magnitudes of all terms of `value`
};

Product Dot(const HeadRows& a, int64_t row_a, const HeadRows& b, int64_t row_b) {
  Product dot;
  for (int64_t d = 0; d < a.columns; ++d) {
    const double term = At(a, row_a, d) * At(b, row_b, d);
    dot.value += term;
    dot.terms += std::fabs(term);
  }
  return dot;
}

/// A factor in a term of a sum, and a bound on the factor's error.
struct Factor {
  double value = 0;
  double error = 0;
};

/// Adds to the factor's error the error of rounding the factor to a 16-bit type.
Factor Rounded(Factor factor, DType dtype) {
  if (dtype == DType::kF32) return factor;
  factor.error += UnitRoundoff(dtype) * std::fabs(factor.value);
  if (dtype == DType::kF16) factor.error += 0x1p-25;
  return factor;
}

struct Pair {
  Factor p, ds;
};

Pair ComputePair(const BackwardHead& head, const RowFacts& facts, int64_t row, int64_t key) {
  const Product score = Dot(head.q, row, head.k, key);
  const Product dp = Dot(head.d_out, row, head.v, key);
  const DType dtype = head.q.dtype;
  const double exp2_error = dtype == DType::kF32 ? 4 * kUnit : 4e-6;
  const double magnitude = std::fabs(head.scale) * score.terms + std::fabs(facts.max) + std::fabs(facts.log_sum);
  const double relative = (static_cast<double>(head.q.columns) + 8) * kUnit * magnitude + facts.lse_error + exp2_error;
  const double p = std::exp(head.scale * score.value - facts.max - facts.log_sum);
  const double p_error = p * relative + kFlushed;
  const double difference = dp.value - facts.delta;
  const double difference_error = static_cast<double>(head.v.columns) * kUnit * dp.terms + facts.delta_error +
                                  3 * kUnit * (std::fabs(dp.value) + std::fabs(facts.delta));
  const double ds_error = p_error * std::fabs(difference) + p * difference_error + kFlushed;
  return {.p = Rounded({p, p_error}, dtype), .ds = Rounded({p * difference, ds_error}, dtype)};
}

/// Computes the sum over x of factor_x * row_x, and a bound on the error of this sum.
class RowSum {
 public:
  explicit RowSum(const HeadRows& rows)
      : dtype_(rows.dtype), value_(static_cast<size_t>(rows.columns)), error_(value_), terms_(value_) {}

  void Add(const Factor& factor, const HeadRows& rows, int64_t row) {
    ++count_;
    for (size_t d = 0; d < value_.size(); ++d) {
      const double x = At(rows, row, static_cast<int64_t>(d));
      value_[d] += factor.value * x;
      error_[d] += factor.error * std::fabs(x) + kFlushed;
      terms_[d] += std::fabs(factor.value * x);
    }
  }

  [[nodiscard]] GradientRow Finish(double scale) const {
    const double subnormal = dtype_ == DType::kF16 ? 0x1p-25 : 0;
    GradientRow row;
    for (size_t d = 0; d < value_.size(); ++d) {
      const double value = scale * value_[d];
      const double before_rounding = std::fabs(scale) * (error_[d] + (count_ + 8) * kUnit * terms_[d]);
      row.value.push_back(value);
      row.bound.push_back(before_rounding + UnitRoundoff(dtype_) * std::fabs(value) + subnormal);
    }
    return row;
  }

 private:
  DType dtype_;
  double count_ = 0;
  std::vector<double> value_, error_, terms_;
};

}  // namespace

RowFacts FactsFromInputs(const HeadRows& out, const HeadRows& d_out, int64_t row, double max, double sum) {
  const Product delta = Dot(out, row, d_out, row);
  return {.max = max,
          .log_sum = std::log(sum),
          .delta = delta.value,
          .delta_error = static_cast<double>(out.columns) * kUnit * delta.terms};
}

RowFacts FactsFromForward(const ForwardRow& forward, const HeadRows& d_out, int64_t row) {
  RowFacts facts = {.max = forward.max, .log_sum = forward.log_sum, .lse_error = forward.lse_error};
  const auto columns = static_cast<double>(d_out.columns);
  for (size_t d = 0; d < forward.out.size(); ++d) {
    const double gradient = At(d_out, row, static_cast<int64_t>(d));
    facts.delta += gradient * forward.out[d];
    facts.delta_error += std::fabs(gradient) * (forward.bound[d] + columns * kUnit * std::fabs(forward.out[d]));
  }
  return facts;
}

GradientRow ComputeQueryGradient(const BackwardHead& head, int64_t row) {
  RowSum dq(head.k);
  const RowFacts facts = head.facts(row);
  for (int64_t key = 0; key < head.sk; ++key) {
    if (head.keeps(row, key)) dq.Add(ComputePair(head, facts, row, key).ds, head.k, key);
  }
  return dq.Finish(head.scale);
}

KeyGradients ComputeKeyGradients(std::span<const BackwardHead> group, int64_t key) {
  RowSum dk(group.front().q), dv(group.front().d_out);
  for (const BackwardHead& head : group) {
    for (int64_t row = 0; row < head.sq; ++row) {
      if (!head.keeps(row, key)) continue;
      const Pair pair = ComputePair(head, head.facts(row), row, key);
      dk.Add(pair.ds, head.q, row);
      dv.Add(pair.p, head.d_out, row);
    }
  }
  return {.dk = dk.Finish(group.front().scale), .dv = dv.Finish(1)};
}

}  // namespace fa::check
