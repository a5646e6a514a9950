// Computes O = drop(softmax(S)) V, row by row: first all scores, then their maximum, the sum of the exponentials, and
// the weighted sum of values.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "reference/attention.h"
#include "reference/exponential.h"
#include "reference/scores.h"

namespace reference {
namespace {

constexpr double kNoKeysMax = -static_cast<double>(FLT_MAX);
constexpr double kNoKeysSum = static_cast<double>(FLT_MAX);

/// How values are rounded. In double they are not rounded.
struct Rounding {
  bool on = false;
  Format format = Format::kF32;
  [[nodiscard]] double operator()(double x) const { return on ? RoundTo(format, x) : x; }
};

struct RowAddress {
  int64_t b, n, i;
};

/// Returns the largest magnitude in each row of v. Infinite values are left out, because each affects only its own
/// column.
std::vector<double> LargestOfRows(const Problem& p) {
  std::vector<double> largest(p.v.size() / static_cast<size_t>(std::max<int64_t>(p.dv, 1)));
  for (size_t row = 0; row < largest.size(); ++row) {
    for (int64_t c = 0; c < p.dv; ++c) {
      const double v = p.v[row * static_cast<size_t>(p.dv) + static_cast<size_t>(c)];
      if (std::isfinite(v)) largest[row] = std::max(largest[row], std::fabs(v));
    }
  }
  return largest;
}

void AddMagnitudes(const Problem& p, RowAddress at, const std::vector<double>& probability,
                   const std::vector<Score<double>>& scores, double max, const std::vector<double>& largest_v,
                   ForwardResult* result) {
  Magnitudes& m = result->magnitudes;
  const int64_t out = p.QueryRow(at.b, at.n, at.i, p.dv);
  const int64_t statistic = p.QueryRow(at.b, at.n, at.i, 1);
  const int64_t n_kv = at.n / (p.heads / p.heads_kv);
  m.keys[statistic] = static_cast<double>(scores.size());
  const double* before = nullptr;
  double repeats = 0;  // how often the key has occurred, if sparse attention lists it several times
  for (size_t x = 0; x < scores.size(); ++x) {
    const double* v = &p.v[p.KeyRow(at.b, n_kv, scores[x].key, p.dv)];
    const double pz = probability[x] * scores[x].drop;
    const bool again = before != nullptr && probability[x] == probability[x - 1] && std::equal(v, v + p.dv, before);
    repeats = again ? repeats + 1 : 1;
    before = v;
    const double magnitude = scores[x].magnitude;
    double* abs_out = &m.abs_out[out];
    double* rms_out = &m.rms_out[out];
    double* score_out = &m.score_out[out];
    for (int64_t c = 0; c < p.dv; ++c) {
      const double term = std::fabs(pz * v[c]);
      abs_out[c] += term;
      // Equal terms are rounded alike, so n of them add n^2 term^2, of which this one is the last part.
      rms_out[c] += (2 * repeats - 1) * term * term;
      score_out[c] += term * magnitude;
    }
    const double largest = std::fabs(scores[x].drop) * largest_v[p.KeyRow(at.b, n_kv, scores[x].key, 1)];
    m.largest_v[statistic] = std::max(m.largest_v[statistic], largest);
    m.score[statistic] += probability[x] * scores[x].magnitude;
    if (scores[x].value > max - 1) m.score_near[statistic] = std::max(m.score_near[statistic], scores[x].magnitude);
  }
  for (int64_t c = 0; c < p.dv; ++c) m.rms_out[out + c] = std::sqrt(m.rms_out[out + c]);
}

template <typename Real>
void ForwardRow(const Problem& p, RowAddress at, Rounding rounding, const std::vector<double>& largest_v,
                ForwardResult* result) {
  const int64_t statistic = p.QueryRow(at.b, at.n, at.i, 1);
  const bool has_sink = !p.sink.empty();
  std::vector<Score<Real>> scores;
  ScoresOfRow<Real>(p, at.b, at.n, at.i, &scores);
  result->lse[statistic] = -std::numeric_limits<double>::infinity();
  if (p.lengths.sk[at.b] == 0) return;  // no key: this row's results stay 0
  if (scores.empty() && !has_sink) {
    result->max[statistic] = kNoKeysMax;
    result->sum[statistic] = kNoKeysSum;
    return;
  }

  Real max =
      has_sink ? static_cast<Real>(p.sink[p.SinkIndex(at.b, at.n, at.i)]) : -std::numeric_limits<Real>::infinity();
  for (const auto& score : scores) max = std::max(max, score.value);
  Real sum = has_sink ? ExpBelow(static_cast<Real>(p.sink[p.SinkIndex(at.b, at.n, at.i)]), max) : 0;
  std::vector<double> probability;
  probability.reserve(scores.size());
  for (const auto& score : scores) {
    const Real unnormalised = std::exp(score.value - max);
    sum += unnormalised;
    probability.push_back(static_cast<double>(unnormalised));
  }
  result->max[statistic] = static_cast<double>(max);
  result->sum[statistic] = static_cast<double>(sum);
  result->lse[statistic] = static_cast<double>(max + std::log(sum));

  const int64_t n_kv = at.n / (p.heads / p.heads_kv);
  std::vector<Real> out(static_cast<size_t>(p.dv), Real{0});
  for (size_t x = 0; x < scores.size(); ++x) {
    const double* v = &p.v[p.KeyRow(at.b, n_kv, scores[x].key, p.dv)];
    const double dropped = probability[x] * static_cast<double>(scores[x].drop);
    const Real weight = static_cast<Real>(rounding.format == Format::kF32 ? dropped : rounding(dropped));
    Real* sums = out.data();
    for (int64_t c = 0; c < p.dv; ++c) sums[c] += weight * static_cast<Real>(v[c]);
  }
  for (int64_t c = 0; c < p.dv; ++c) {
    result->out[p.QueryRow(at.b, at.n, at.i, p.dv) + c] = rounding(static_cast<double>(out[c] / sum));
  }
  if constexpr (std::is_same_v<Real, double>) {
    for (double& value : probability) value /= sum;
    AddMagnitudes(p, at, probability, scores, max, largest_v, result);
  }
}

template <typename Real>
ForwardResult Run(const Problem& p, Rounding rounding) {
  const size_t rows = static_cast<size_t>(p.RowsBefore(p.lengths.sq, p.batch()) * p.heads);
  const size_t size = rows * static_cast<size_t>(p.dv);
  ForwardResult result;
  for (auto* values : {&result.max, &result.sum, &result.lse, &result.magnitudes.score, &result.magnitudes.score_near,
                       &result.magnitudes.keys, &result.magnitudes.largest_v}) {
    values->assign(rows, 0.0);
  }
  for (auto* values :
       {&result.out, &result.magnitudes.abs_out, &result.magnitudes.rms_out, &result.magnitudes.score_out}) {
    values->assign(size, 0.0);
  }
  const std::vector<double> largest_v = LargestOfRows(p);
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) ForwardRow<Real>(p, {b, n, i}, rounding, largest_v, &result);
    }
  }
  return result;
}

}  // namespace

ForwardResult Forward(const Problem& problem) { return Run<double>(problem, {}); }

ForwardResult NaiveForward(const Problem& problem, Format format) {
  return Run<float>(problem, {.on = true, .format = format});
}

}  // namespace reference
