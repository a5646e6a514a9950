#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ops/indexer/indexer_expectation.h"
#include "ops/indexer/loss_case.h"

namespace fa::test {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kClamp = 1e-8;

/// How far p and ln y may be off for each key of one row.
struct RowErrors {
  std::vector<double> p, ln_y;
};

/// The largest relative error of an exponential. All types use the polynomial of degree 5 in exp2.inc, whose error is
/// at most 1.9 ulp.
constexpr double kExpRelative = 4 * kUnit;
/// The mean and six standard deviations of an exponential's relative error over all fractional parts, with u = kUnit.
/// The mean is 0.4 u (2.2e-8). The 8.7 u come from the polynomial (6.2e-8) and from computing it (about u).
constexpr double kExpMean = 0.4 * kUnit, kExpSixSigma = 8.7 * kUnit;

/// Returns six standard deviations of the error with which f32 adds n terms. `squares` is the sum of the terms'
/// squares. The error of an addition is spread evenly up to u = kUnit times its partial sum, so its variance is (u *
/// sum)^2 / 3. The kernel chooses the order of additions. On average over all orders, the squares of the partial sums
/// add up to at most (n + 1) / 2 (squares + sum^2).
double SixSigmaOfSum(int64_t n, double squares, double sum) {
  return 6 * kUnit * std::sqrt(static_cast<double>(n + 1) * (squares + sum * sum) / 6);
}

double SquaresOfTerms(const double* a, const double* b, int64_t n) {
  double squares = 0;
  for (int64_t x = 0; x < n; ++x) squares += a[x] * b[x] * a[x] * b[x];
  return squares;
}

/// Returns six standard deviations of the error of an indexer's score. Both the heads' products and their sum have
/// errors.
double SixSigmaOfScore(const reference::IndexerProblem& p, int64_t token, int64_t key) {
  double variance = 0, squares = 0, sum = 0;
  for (int64_t g = 0; g < p.heads; ++g) {
    const int64_t row = token * p.heads + g;
    const double product = p.Product(token, g, key), weight = p.weights[row];
    const double error = weight * (SixSigmaOfSum(p.d, SquaresOfTerms(&p.q[row * p.d], &p.k[key * p.d], p.d), product) +
                                   static_cast<double>(p.d) * static_cast<double>(FLT_MIN));
    variance += error * error;
    const double term = weight * std::max(product, 0.0);
    squares += term * term;
    sum += term;
  }
  const double error = SixSigmaOfSum(p.heads, squares, sum);
  return std::sqrt(variance + error * error);
}

/// Returns six standard deviations of the error of an attention score.
double SixSigmaOfScore(const reference::SparseProblem& p, int64_t token, int64_t head, int64_t key) {
  const int64_t query_row = token * p.heads + head, key_row = key * p.heads_kv + head / (p.heads / p.heads_kv);
  double squares = SquaresOfTerms(&p.q[query_row * p.d], &p.k[key_row * p.d], p.d);
  if (p.d_rope > 0) squares += SquaresOfTerms(&p.q_rope[query_row * p.d_rope], &p.k_rope[key_row * p.d_rope], p.d_rope);
  return SixSigmaOfSum(p.d + p.d_rope, squares * p.scale * p.scale, p.Score(token, head, key));
}

/// Returns how far p of one key may be off, where p is `share` times the sum of the heads' probabilities.
double TargetError(const reference::LossProblem& problem, int64_t token, int64_t key, double share) {
  const reference::SparseProblem& p = problem.attention;
  double error = 0;
  for (int64_t n = 0; n < p.heads; ++n) {
    const int64_t row = token * p.heads + n;
    double magnitude = 0;
    const double score = p.Score(token, n, key, &magnitude);
    const double max = problem.max[row], sum = problem.sum[row];
    const double relative = ErrorOfSum(p.d + p.d_rope) * magnitude + kExpRelative + ErrorOfSum(p.heads) +
                            4 * kUnit * (std::fabs(max) + std::fabs(std::log(sum)) + std::fabs(score));
    error += std::exp(score - max) / sum * relative + static_cast<double>(FLT_MIN);
  }
  return error * share;
}

RowErrors ErrorsOf(const reference::LossProblem& problem, int64_t b, int64_t t, const reference::LossRow& row,
                   DType dtype) {
  const reference::Selection& s = problem.attention.selection;
  const int64_t token = s.FirstToken(b) + t;
  const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
  RowErrors errors;
  std::vector<double> score_errors;
  double largest = 0, mean_score_error = 0;
  for (size_t x = 0; x < keys.size(); ++x) {
    const int64_t key = s.FirstKey(b) + keys[x].key;
    errors.p.push_back(problem.p_head_mean.empty() ? TargetError(problem, token, key, row.share) : 0);
    score_errors.push_back(ScoreTolerance(problem.indexer, token, key, dtype));
    largest = std::max(largest, std::fabs(row.score[x]));
    mean_score_error += row.y[x] * score_errors.back();
  }
  const double given = problem.dense
                           ? std::fabs(problem.max_index[token]) + std::fabs(std::log(problem.sum_index[token]))
                           : std::log(static_cast<double>(keys.size()));
  for (size_t x = 0; x < keys.size(); ++x) {
    errors.ln_y.push_back(score_errors[x] + mean_score_error + 2 * kExpRelative + ErrorOfSum(std::ssize(keys)) +
                          4 * kUnit * (2 * largest + given));
  }
  if (problem.l1) {
    // kL1 divides p by the sum of the row, which has an error of its own.
    double sum_error = 0;
    for (const double error : errors.p) sum_error += error;
    const double relative = sum_error / row.p_sum + ErrorOfSum(std::ssize(keys));
    for (size_t x = 0; x < keys.size(); ++x) errors.p[x] = errors.p[x] / row.p_sum + row.p[x] * relative;
  }
  return errors;
}

/// How far the loss may be off. `linear` adds up errors that may all have one sign. `squares` adds up the squares of
/// independent errors at six standard deviations. `by_scale` is the derivative of the loss by a common factor of all
/// attention scores.
struct LossError {
  double linear = 0, squares = 0, by_scale = 0;
  void AddShared(double error) { linear += std::fabs(error); }
  void AddIndependent(double error) { squares += error * error; }
  /// Adds the error of an exponential: a relative error of e changes the loss by `weight` * e.
  void AddExponential(double weight) {
    AddShared(weight * kExpMean);
    AddIndependent(weight * kExpSixSigma);
  }
  [[nodiscard]] double Bound() const { return linear + 2 * kUnit * std::fabs(by_scale) + std::sqrt(squares); }
};

/// Adds the errors of p. For each key, the loss changes by the key's element of `weights` times the relative error of
/// p.
void AddTargetErrors(const reference::LossProblem& problem, int64_t b, int64_t t, const reference::LossRow& row,
                     const std::vector<double>& weights, LossError* error) {
  const reference::SparseProblem& p = problem.attention;
  const int64_t token = p.selection.FirstToken(b) + t;
  const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
  for (int64_t n = 0; n < p.heads && problem.p_head_mean.empty(); ++n) {
    const double max = problem.max[token * p.heads + n], sum = problem.sum[token * p.heads + n];
    double of_shift = 0;
    for (size_t x = 0; x < keys.size(); ++x) {
      const int64_t key = p.selection.FirstKey(b) + keys[x].key;
      const double score = p.Score(token, n, key);
      const double mean = row.p[x] * (problem.l1 ? row.p_sum : 1);
      const double share = mean == 0 ? 0 : std::exp(score - max) / sum * row.share / mean;
      error->AddIndependent(weights[x] * share * (SixSigmaOfScore(p, token, n, key) + 4 * kUnit * std::fabs(score)));
      error->by_scale += weights[x] * share * score;
      of_shift += weights[x] * share;
    }
    error->AddIndependent(of_shift * 4 * kUnit * (std::fabs(max) + std::fabs(std::log(sum))));
  }
  for (const double weight : weights) {
    if (problem.p_head_mean.empty()) {
      error->AddExponential(weight);
      error->AddIndependent(weight * SixSigmaOfSum(p.heads, 1, 1));
    }
    if (problem.l1) error->AddIndependent(weight * 4 * kUnit);
  }
}

void AddRowErrors(const reference::LossProblem& problem, int64_t b, int64_t t, const reference::LossRow& row,
                  LossError* error) {
  const reference::Selection& s = problem.attention.selection;
  const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
  if (keys.empty()) return;
  const int64_t token = s.FirstToken(b) + t;
  // The sum of p' where y is not clamped, and the sum of p (ln p' - ln y' + 1).
  double clamped_p = 0, mean_slope = 0;
  std::vector<double> slopes;
  for (size_t x = 0; x < keys.size(); ++x) {
    const double p = std::max(row.p[x], kClamp), y = std::max(row.y[x], kClamp);
    slopes.push_back(std::log(p / y) + 1);
    mean_slope += row.p[x] * slopes.back();
    if (row.y[x] >= kClamp) clamped_p += p;
  }
  const double max = problem.dense ? problem.max_index[token] : *std::max_element(row.score.begin(), row.score.end());
  std::vector<double> target_weights;
  for (size_t x = 0; x < keys.size(); ++x) {
    const double p = std::max(row.p[x], kClamp);
    const double weight = p - (problem.dense || row.y[x] < kClamp ? 0 : clamped_p * row.y[x]);
    error->AddIndependent(weight * (SixSigmaOfScore(problem.indexer, token, s.FirstKey(b) + keys[x].key) +
                                    4 * kUnit * (std::fabs(row.score[x] - max) + 1)));
    error->AddExponential(weight);
    target_weights.push_back(row.p[x] * (slopes[x] - (problem.l1 ? mean_slope : 0)));
  }
  AddTargetErrors(problem, b, t, row, target_weights, error);
}

}  // namespace

std::vector<ExpectedOutput> ExpectLoss(const LossCall& call) {
  const reference::LossProblem& problem = call.values();
  const reference::Selection& s = problem.attention.selection;
  const DType dtype = call.loss_case().tokens.dtype;
  const double factor = problem.mean ? 1 / static_cast<double>(std::max<int64_t>(s.tokens(), 1)) : 1;
  IndexerGradientTolerance tolerance(problem.indexer, dtype);
  LossError loss_error;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const reference::LossRow row = reference::RowOfLoss(problem, b, t);
      const RowErrors errors = ErrorsOf(problem, b, t, row, dtype);
      AddRowErrors(problem, b, t, row, &loss_error);
      const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
      for (size_t x = 0; x < keys.size(); ++x) {
        const double error =
            row.y[x] * errors.ln_y[x] + static_cast<double>(FLT_MIN) + errors.p[x] + 4 * kUnit * (row.y[x] + row.p[x]);
        tolerance.Add(s.FirstToken(b) + t, s.FirstKey(b) + keys[x].key, factor * (row.y[x] - row.p[x]), factor * error);
      }
    }
  }
  const reference::LossResult want = reference::IndexerLoss(problem);
  std::vector<ExpectedOutput> expected = tolerance.Expect(want.gradients, call.loss_case().weights_dtype());
  // The sums are in double. Only 1 / tokens and the loss are rounded to f32.
  expected.push_back({"loss", {want.loss}, {factor * loss_error.Bound() + 2 * kUnit * std::fabs(want.loss)}});
  return expected;
}

}  // namespace fa::test
