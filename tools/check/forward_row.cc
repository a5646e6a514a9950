#include "check/forward_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check/element.h"

namespace fa::check {
namespace {

struct Scores {
  std::vector<double> p;  // exp(score - max) per key, 0 for a masked key
  double max = 0;
  double sum = 0;
  double largest_terms = 0;  // the largest |scale| sum_d |q_d k_jd| over the keys j
};

Scores ComputeScores(const ForwardRowInputs& in) {
  Scores scores;
  scores.p.assign(static_cast<size_t>(in.sk), -std::numeric_limits<double>::infinity());
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < in.sk; ++j) {
    if (!in.keeps(j)) continue;
    double dot = 0, terms = 0;
    for (int64_t d = 0; d < in.q.columns; ++d) {
      const double product = At(in.q, in.row, d) * At(in.k, j, d);
      dot += product;
      terms += std::fabs(product);
    }
    scores.p[static_cast<size_t>(j)] = in.scale * dot;
    max = std::max(max, in.scale * dot);
    scores.largest_terms = std::max(scores.largest_terms, std::fabs(in.scale) * terms);
  }
  if (std::isinf(max)) {  // this row has no key
    std::fill(scores.p.begin(), scores.p.end(), 0.0);
    return scores;
  }
  scores.max = max;
  for (double& p : scores.p) {
    p = std::exp(p - max);
    scores.sum += p;
  }
  return scores;
}

double ErrorOfLse(const ForwardRowInputs& in, double largest_terms) {
  const double u = UnitRoundoff(DType::kF32);
  const double exp2_error = in.q.dtype == DType::kF32 ? 4 * u : 4e-6;
  return (static_cast<double>(in.q.columns) + 6) * u * largest_terms + static_cast<double>(in.sk) * u + exp2_error;
}

}  // namespace

ForwardRow ComputeForwardRow(const ForwardRowInputs& in) {
  const Scores scores = ComputeScores(in);
  const double lse_error = ErrorOfLse(in, scores.largest_terms);
  const double relative = 2 * lse_error + (in.q.dtype == DType::kF32 ? 0 : UnitRoundoff(in.q.dtype));
  const double subnormal = in.q.dtype == DType::kF16 ? 0x1p-25 : 0;
  ForwardRow row;
  row.max = scores.max;
  row.log_sum = scores.sum > 0 ? std::log(scores.sum) : 0;
  row.lse_error = lse_error;
  for (int64_t d = 0; d < in.v.columns; ++d) {
    double out = 0, weight = 0;
    for (int64_t j = 0; j < in.sk; ++j) {
      const double p = scores.p[static_cast<size_t>(j)];
      if (p == 0) continue;  // the value of a masked key is never read
      const double term = p / scores.sum * At(in.v, j, d);
      out += term;
      weight += std::fabs(term);
    }
    row.out.push_back(out);
    row.bound.push_back(relative * weight + UnitRoundoff(in.q.dtype) * std::fabs(out) + subnormal);
  }
  return row;
}

}  // namespace fa::check
