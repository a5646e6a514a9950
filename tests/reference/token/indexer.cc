#include "reference/token/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/products.h"

namespace reference {

double IndexerProblem::Product(int64_t token, int64_t head, int64_t key, double* magnitude) const {
  if (magnitude != nullptr) *magnitude = 0;
  return SumOfProducts(&q[(token * heads + head) * d], &k[key * d], d, magnitude);
}

double IndexerProblem::Score(int64_t token, int64_t key) const {
  double score = 0;
  for (int64_t g = 0; g < heads; ++g) {
    const double product = Product(token, g, key);
    // A NaN is not below 0, so ReLU keeps it.
    score += weights[token * heads + g] * (product < 0 ? 0 : product);
  }
  return k_scale.empty() ? score : k_scale[key] * score;
}

std::vector<int64_t> TopKeys(std::span<const double> scores, int64_t slots) {
  std::vector<int64_t> keys(scores.size());
  std::iota(keys.begin(), keys.end(), int64_t{0});
  std::sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) {
    if (std::isnan(scores[a]) != std::isnan(scores[b])) return std::isnan(scores[b]);
    if (std::isnan(scores[a]) || scores[a] == scores[b]) return a < b;  // -0 and +0 count as equal
    return scores[a] > scores[b];
  });
  keys.resize(std::min(keys.size(), static_cast<size_t>(slots)));
  return keys;
}

IndexerResult IndexerForward(const IndexerProblem& p) {
  const Selection& s = p.selection;
  IndexerResult result;
  result.indices.assign(static_cast<size_t>(s.tokens() * s.slots), -1);
  result.values.assign(result.indices.size(), -std::numeric_limits<double>::infinity());
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      std::vector<double> scores;
      for (int64_t key = 0; key < s.Limit(b, t); ++key) scores.push_back(p.Score(token, s.FirstKey(b) + key));
      int64_t slot = token * s.slots;
      for (const int64_t key : TopKeys(scores, s.slots)) {
        result.indices[slot] = key;
        result.values[slot++] = scores[key];
      }
    }
  }
  return result;
}

IndexerStatistics StatisticsOfScores(const IndexerProblem& p) {
  const Selection& s = p.selection;
  IndexerStatistics result;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t, limit = s.Limit(b, t);
      std::vector<double> scores;
      for (int64_t key = 0; key < limit; ++key) scores.push_back(p.Score(token, s.FirstKey(b) + key));
      double max = limit == 0 ? 0 : scores.front(), sum = 0;
      for (const double score : scores) max = std::isnan(score) || score > max ? score : max;
      for (const double score : scores) sum += std::exp(score - max);
      result.max.push_back(max);
      result.sum.push_back(sum);
    }
  }
  return result;
}

void AddScoreGradient(const IndexerProblem& p, int64_t token, int64_t key, double d_score, IndexerGradients* g) {
  for (int64_t n = 0; n < p.heads; ++n) {
    const double product = p.Product(token, n, key);
    const int64_t row = token * p.heads + n;
    const double d_product = product > 0 ? d_score * p.weights[row] : 0;
    // A NaN is not below 0, so ReLU keeps it.
    g->dweights[row] += d_score * (product < 0 ? 0 : product);
    for (int64_t x = 0; x < p.d; ++x) {
      g->dq[row * p.d + x] += d_product * p.k[key * p.d + x];
      g->dk[key * p.d + x] += d_product * p.q[row * p.d + x];
    }
  }
}

IndexerGradients IndexerBackward(const IndexerProblem& p, const std::vector<double>& d_values) {
  const Selection& s = p.selection;
  IndexerGradients g;
  g.dq.assign(p.q.size(), 0);
  g.dk.assign(p.k.size(), 0);
  g.dweights.assign(p.weights.size(), 0);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      for (const SelectedKey& at : s.KeysOf(b, t)) {
        AddScoreGradient(p, token, s.FirstKey(b) + at.key, d_values[token * s.slots + at.slot], &g);
      }
    }
  }
  return g;
}

}  // namespace reference
