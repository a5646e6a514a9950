#ifndef FA_TESTS_REFERENCE_SCORES_H_
#define FA_TESTS_REFERENCE_SCORES_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "reference/attention.h"
#include "reference/products.h"

namespace reference {

/// The score of a pair that a query sees, computed in the type `Real`.
template <typename Real>
struct Score {
  int64_t key = 0;
  Real value = 0;
  Real drop = 1;         ///< the factor of dropout: 0 or 1/keep_prob
  Real cap_slope = 1;    ///< the derivative of `value` by scale * QK
  Real distance = 0;     ///< the factor by which the slope of pse is multiplied
  double magnitude = 0;  ///< sum of the magnitudes of the value's terms
};

/// Returns the factor by which dropout multiplies a pair: 0 if the pair is dropped, 1 / keep_prob if it is kept.
[[nodiscard]] double DropFactor(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j);

/// Returns `sum` plus the products a[x] * b[x]. In f32 they are added one by one, as a naive loop adds them.
template <typename Real>
Real Dot(const double* a, const double* b, int64_t size, Real sum, double* magnitude) {
  if constexpr (std::is_same_v<Real, double>) return sum + SumOfProducts(a, b, size, magnitude);
  for (int64_t x = 0; x < size; ++x) {
    sum += static_cast<Real>(a[x]) * static_cast<Real>(b[x]);
    *magnitude += std::fabs(a[x] * b[x]);
  }
  return sum;
}

/// Returns |(j + kv_start) - (i + q_start)|. In mode 8, q_start and kv_start apply to batch element 0 only.
inline double Distance(const Problem& problem, int64_t b, int64_t i, int64_t j) {
  const bool starts = problem.mask.mode != 8 || b == 0;
  const double q_start = starts ? static_cast<double>(problem.q_start) : 0;
  const double kv_start = starts ? static_cast<double>(problem.kv_start) : 0;
  return std::fabs((static_cast<double>(j) + kv_start) - (static_cast<double>(i) + q_start));
}

template <typename Real>
Score<Real> ScoreOf(const Problem& p, int64_t b, int64_t n, int64_t i, int64_t j) {
  const int64_t n_kv = n / (p.heads / p.heads_kv);
  Score<Real> score{.key = j};
  Real qk = Dot<Real>(&p.q[p.QueryRow(b, n, i, p.d)], &p.k[p.KeyRow(b, n_kv, j, p.d)], p.d, 0, &score.magnitude);
  if (p.d_rope > 0) {
    qk = Dot<Real>(&p.q_rope[p.QueryRow(b, n, i, p.d_rope)], &p.k_rope[p.KeyRow(b, n_kv, j, p.d_rope)], p.d_rope, qk,
                   &score.magnitude);
  }
  const Real scale = static_cast<Real>(p.scale);
  score.magnitude *= std::fabs(p.scale);

  if (p.pse_type == PseType::kAddThenScale) {
    const double pse = p.pse.values[PseIndex(p, b, n, i, j)];
    score.value = scale * (qk + static_cast<Real>(pse));
    score.magnitude += std::fabs(p.scale * pse);
  } else {
    score.value = scale * qk;
  }
  if (p.softcap > 0) {
    const Real cap = static_cast<Real>(p.softcap);
    const Real tanh = std::tanh(score.value / cap);
    score.value = cap * tanh;
    score.cap_slope = 1 - tanh * tanh;
    // An infinite score gives exactly cap or -cap, so the result has no rounding error.
    if (std::isinf(score.magnitude) && std::fabs(tanh) == 1) score.magnitude = 0;
  }
  if (p.pse_type == PseType::kScaleThenAdd) {
    const double pse = p.pse.values[PseIndex(p, b, n, i, j)];
    score.value += static_cast<Real>(pse);
    score.magnitude += std::fabs(pse);
  } else if (p.pse_type == PseType::kSlopes || p.pse_type == PseType::kSlopesSqrt) {
    const double distance = Distance(p, b, i, j);
    score.distance = static_cast<Real>(p.pse_type == PseType::kSlopes ? distance : std::sqrt(distance));
    const double slope = p.slopes[b * p.heads + n];
    score.value -= static_cast<Real>(slope) * score.distance;
    score.magnitude += std::fabs(slope * static_cast<double>(score.distance));
  }
  score.drop = static_cast<Real>(DropFactor(p, b, n, i, j));
  return score;
}

/// Computes the scores of the pairs that query i sees, in ascending order of keys. Pairs whose score is -inf are left
/// out.
template <typename Real>
void ScoresOfRow(const Problem& problem, int64_t b, int64_t n, int64_t i, std::vector<Score<Real>>* scores) {
  scores->clear();
  for (int64_t j = 0; j < problem.lengths.sk[b]; ++j) {
    if (!Keeps(problem, b, n, i, j)) continue;
    const Score<Real> score = ScoreOf<Real>(problem, b, n, i, j);
    if (score.value != -std::numeric_limits<Real>::infinity()) scores->push_back(score);
  }
}

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_SCORES_H_
