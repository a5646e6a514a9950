#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ops/indexer/indexer_expectation.h"
#include "ops/indexer/loss_case.h"

namespace fa::test {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kClamp = 1e-8;

/// What one row may be off by.
struct RowErrors {
  std::vector<double> p, ln_y;
};

double ExpRelative(DType dtype) { return dtype == DType::kF32 ? 4 * kUnit : 4e-6; }

/// Of the mean of the heads' probabilities of one key.
double HeadMeanError(const reference::LossProblem& problem, int64_t token, int64_t key, DType dtype) {
  const reference::SparseProblem& p = problem.attention;
  double error = 0;
  for (int64_t n = 0; n < p.heads; ++n) {
    const int64_t row = token * p.heads + n;
    double magnitude = 0;
    const double score = p.Score(token, n, key, &magnitude);
    const double max = problem.max[row], sum = problem.sum[row];
    const double relative = ErrorOfSum(p.d + p.d_rope) * magnitude + ExpRelative(dtype) + ErrorOfSum(p.heads) +
                            4 * kUnit * (std::fabs(max) + std::fabs(std::log(sum)) + std::fabs(score));
    error += std::exp(score - max) / sum * relative + static_cast<double>(FLT_MIN);
  }
  return error / static_cast<double>(p.heads);
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
    errors.p.push_back(problem.p_head_mean.empty() ? HeadMeanError(problem, token, key, dtype) : 0);
    score_errors.push_back(ScoreTolerance(problem.indexer, token, key, dtype));
    largest = std::max(largest, std::fabs(row.score[x]));
    mean_score_error += row.y[x] * score_errors.back();
  }
  const double given = problem.dense
                           ? std::fabs(problem.max_index[token]) + std::fabs(std::log(problem.sum_index[token]))
                           : std::log(static_cast<double>(keys.size()));
  for (size_t x = 0; x < keys.size(); ++x) {
    errors.ln_y.push_back(score_errors[x] + mean_score_error + 2 * ExpRelative(dtype) + ErrorOfSum(std::ssize(keys)) +
                          4 * kUnit * (2 * largest + given));
  }
  if (problem.l1) {
    // The errors so far are of what was divided.
    double sum_error = 0;
    for (const double error : errors.p) sum_error += error;
    const double relative = sum_error / row.p_sum + ErrorOfSum(std::ssize(keys));
    for (size_t x = 0; x < keys.size(); ++x) errors.p[x] = errors.p[x] / row.p_sum + row.p[x] * relative;
  }
  return errors;
}

/// What the loss may be off by: errors that may all point one way, and independent ones, each bounded at six standard
/// deviations, by their squares.
struct LossError {
  double linear = 0, squares = 0;
  void AddShared(double error) { linear += std::fabs(error); }
  void AddIndependent(double error) { squares += error * error; }
  [[nodiscard]] double Bound() const { return linear + std::sqrt(squares); }
};

/// Errors of the target: `weights` is what the loss moves by with the relative error of each key's p.
void AddTargetErrors(const reference::LossProblem& problem, int64_t b, int64_t t, const reference::LossRow& row,
                     const std::vector<double>& weights, DType dtype, LossError* error) {
  const reference::SparseProblem& p = problem.attention;
  const int64_t token = p.selection.FirstToken(b) + t;
  const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
  for (int64_t n = 0; n < p.heads && problem.p_head_mean.empty(); ++n) {
    const double max = problem.max[token * p.heads + n], sum = problem.sum[token * p.heads + n];
    double of_shift = 0;
    for (size_t x = 0; x < keys.size(); ++x) {
      double magnitude = 0;
      const double score = p.Score(token, n, p.selection.FirstKey(b) + keys[x].key, &magnitude);
      const double mean = row.p[x] * (problem.l1 ? row.p_sum : 1);
      const double share = mean == 0 ? 0 : std::exp(score - max) / sum / static_cast<double>(p.heads) / mean;
      error->AddIndependent(weights[x] * share *
                            (ErrorOfSum(p.d + p.d_rope) * magnitude + 4 * kUnit * std::fabs(score)));
      of_shift += weights[x] * share;
    }
    error->AddIndependent(of_shift * 4 * kUnit * (std::fabs(max) + std::fabs(std::log(sum))));
  }
  for (const double weight : weights) {
    if (problem.p_head_mean.empty()) {
      error->AddShared(weight * ExpRelative(dtype));
      error->AddIndependent(weight * ErrorOfSum(p.heads));
    }
    if (problem.l1) error->AddIndependent(weight * 4 * kUnit);
  }
}

void AddRowErrors(const reference::LossProblem& problem, int64_t b, int64_t t, const reference::LossRow& row,
                  DType dtype, LossError* error) {
  const reference::Selection& s = problem.attention.selection;
  const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
  if (keys.empty()) return;
  const int64_t token = s.FirstToken(b) + t;
  double clamped_p = 0, mean_slope = 0;  // sum of p' where y is not clamped; sum of p (ln p' - ln y' + 1)
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
    error->AddIndependent(weight * (ScoreTolerance(problem.indexer, token, s.FirstKey(b) + keys[x].key, dtype) +
                                    4 * kUnit * (std::fabs(row.score[x] - max) + 1)));
    error->AddShared(weight * ExpRelative(dtype));
    target_weights.push_back(row.p[x] * (slopes[x] - (problem.l1 ? mean_slope : 0)));
  }
  AddTargetErrors(problem, b, t, row, target_weights, dtype, error);
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
      AddRowErrors(problem, b, t, row, dtype, &loss_error);
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
  // The sums run in double; 1 / tokens and the loss are rounded.
  expected.push_back({"loss", {want.loss}, {factor * loss_error.Bound() + 2 * kUnit * std::fabs(want.loss)}});
  return expected;
}

}  // namespace fa::test
