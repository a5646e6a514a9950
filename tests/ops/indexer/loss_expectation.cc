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

}  // namespace

std::vector<ExpectedOutput> ExpectLoss(const LossCall& call) {
  const reference::LossProblem& problem = call.values();
  const reference::Selection& s = problem.attention.selection;
  const DType dtype = call.loss_case().tokens.dtype;
  const double factor = problem.mean ? 1 / static_cast<double>(std::max<int64_t>(s.tokens(), 1)) : 1;
  IndexerGradientTolerance tolerance(problem.indexer, dtype);
  double loss_error = 0, loss_magnitude = 0;
  int64_t terms = 0;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const reference::LossRow row = reference::RowOfLoss(problem, b, t);
      const RowErrors errors = ErrorsOf(problem, b, t, row, dtype);
      const std::vector<reference::SelectedKey> keys = problem.KeysOf(b, t);
      for (size_t x = 0; x < keys.size(); ++x) {
        const double p = std::max(row.p[x], kClamp), y = std::max(row.y[x], kClamp);
        const double logarithms = std::fabs(std::log(p)) + std::fabs(std::log(y));
        loss_error +=
            errors.p[x] * (std::fabs(std::log(p / y)) + 1) + p * (errors.ln_y[x] + 8 * kUnit * (1 + logarithms));
        loss_magnitude += p * logarithms;
        ++terms;
        const double error =
            row.y[x] * errors.ln_y[x] + static_cast<double>(FLT_MIN) + errors.p[x] + 4 * kUnit * (row.y[x] + row.p[x]);
        tolerance.Add(s.FirstToken(b) + t, s.FirstKey(b) + keys[x].key, factor * (row.y[x] - row.p[x]), factor * error);
      }
    }
  }
  const reference::LossResult want = reference::IndexerLoss(problem);
  std::vector<ExpectedOutput> expected = tolerance.Expect(want.gradients, call.loss_case().weights_dtype());
  expected.push_back({"loss",
                      {want.loss},
                      {factor * (loss_error + ErrorOfSum(terms) * loss_magnitude) + kUnit * std::fabs(want.loss)}});
  return expected;
}

}  // namespace fa::test
