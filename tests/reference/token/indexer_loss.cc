#include "reference/token/indexer_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reference {
namespace {

/// In the loss, this value replaces smaller values of p and y. In the gradients it does not.
constexpr double kSmallest = 1e-8;

/// The sum over the heads of a key's probability.
double HeadSum(const LossProblem& problem, int64_t token, int64_t key) {
  const SparseProblem& p = problem.attention;
  double sum = 0;
  for (int64_t n = 0; n < p.heads; ++n) {
    const int64_t row = token * p.heads + n;
    sum += std::exp(p.Score(token, n, key) - problem.max[row]) / problem.sum[row];
  }
  return sum;
}

/// The factor of HeadSum in the target: 1 / (heads - sum of the sinks' probabilities).
double Share(const LossProblem& problem, int64_t token) {
  const SparseProblem& p = problem.attention;
  auto weight = static_cast<double>(p.heads);
  for (int64_t n = 0; n < std::ssize(p.sink); ++n) {
    const int64_t row = token * p.heads + n;
    weight -= std::exp(p.sink[n] - problem.max[row]) / problem.sum[row];
  }
  return 1 / weight;
}

}  // namespace

LossRow RowOfLoss(const LossProblem& problem, int64_t b, int64_t t) {
  const Selection& s = problem.attention.selection;
  const int64_t token = s.FirstToken(b) + t;
  LossRow row;
  if (problem.p_head_mean.empty()) row.share = Share(problem, token);
  for (const SelectedKey& at : problem.KeysOf(b, t)) {
    const int64_t key = s.FirstKey(b) + at.key;
    row.p.push_back(problem.p_head_mean.empty() ? row.share * HeadSum(problem, token, key)
                                                : problem.p_head_mean[token * s.slots + at.slot]);
    row.score.push_back(problem.indexer.Score(token, key));
  }
  if (row.p.empty()) return row;

  for (const double p : row.p) row.p_sum += p;
  if (problem.l1) {
    for (double& p : row.p) p /= row.p_sum;
  }
  double max = *std::max_element(row.score.begin(), row.score.end());
  double sum = 0;
  for (const double score : row.score) sum += std::exp(score - max);
  if (problem.dense) {
    max = problem.max_index[token];
    sum = problem.sum_index[token];
  }
  for (const double score : row.score) row.y.push_back(std::exp(score - max) / sum);
  return row;
}

LossResult IndexerLoss(const LossProblem& problem) {
  const IndexerProblem& indexer = problem.indexer;
  const Selection& s = problem.attention.selection;
  const double factor = problem.mean ? 1 / static_cast<double>(std::max<int64_t>(s.tokens(), 1)) : 1;
  LossResult result;
  result.gradients.dq.assign(indexer.q.size(), 0);
  result.gradients.dk.assign(indexer.k.size(), 0);
  result.gradients.dweights.assign(indexer.weights.size(), 0);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const std::vector<SelectedKey> keys = problem.KeysOf(b, t);
      const LossRow row = RowOfLoss(problem, b, t);
      for (size_t x = 0; x < keys.size(); ++x) {
        const double p = std::max(row.p[x], kSmallest), y = std::max(row.y[x], kSmallest);
        result.loss += factor * p * (std::log(p) - std::log(y));
        AddScoreGradient(indexer, s.FirstToken(b) + t, s.FirstKey(b) + keys[x].key, factor * (row.y[x] - row.p[x]),
                         &result.gradients);
      }
    }
  }
  return result;
}

}  // namespace reference
