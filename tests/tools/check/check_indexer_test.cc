// Tests the expected results with which `fa bench` compares the indexer and its loss. The tests use finite differences,
// and a distribution worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "check/indexer_row.h"

namespace fa::test {
namespace {

using check::HeadRows;

constexpr int64_t kHeads = 3, kKeys = 5, kD = 4;

/// Rows of numbers computed by a simple formula.
struct Rows {
  Rows(int64_t rows, double frequency) : values(static_cast<size_t>(rows * kD)) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i + 1)));
    }
  }
  [[nodiscard]] HeadRows view() const {
    return {.data = values.data(), .dtype = DType::kF32, .offset = 0, .row_stride = kD, .columns = kD};
  }
  std::vector<float> values;
};

/// One token. Its list of keys is not in ascending order.
struct Token {
  Rows q = Rows(kHeads, 0.9), k = Rows(kKeys + 2, 1.7);
  std::vector<double> weights = {0.5, -1.25, 2};
  std::vector<int64_t> keys = {6, 0, 3, 1, 4};

  [[nodiscard]] check::IndexerToken view() const { return {q.view(), k.view(), weights, keys}; }
  /// Returns the sum of g_j score_j over the token's keys; `gradient` has the g_j.
  [[nodiscard]] double Weighted(const check::ScoreGradient& gradient) const {
    const check::IndexerRow row = check::ComputeIndexerRow(view());
    double sum = 0;
    for (size_t j = 0; j < keys.size(); ++j) sum += gradient.value[j] * row.score[j];
    return sum;
  }
};

check::ScoreGradient SomeGradient() { return {{0.3, -0.7, 1.1, 0.2, -0.4}, std::vector<double>(kKeys)}; }

TEST(CheckIndexer, ScoresAreSumsOfPositiveProducts) {
  const Token token;
  const check::IndexerRow row = check::ComputeIndexerRow(token.view());
  for (size_t j = 0; j < kKeys; ++j) {
    double score = 0;
    for (size_t g = 0; g < kHeads; ++g) {
      double product = 0;
      for (size_t c = 0; c < kD; ++c) {
        product += static_cast<double>(token.q.values[g * kD + c]) *
                   static_cast<double>(token.k.values[static_cast<size_t>(token.keys[j]) * kD + c]);
      }
      EXPECT_EQ(row.product[g * kKeys + j], product);
      score += product > 0 ? token.weights[g] * product : 0;
    }
    EXPECT_DOUBLE_EQ(row.score[j], score);
    EXPECT_GT(row.score_bound[j], 0);
    EXPECT_LT(row.score_bound[j], 1e-4);
  }
}

TEST(CheckIndexer, GradientsAreThoseOfFiniteDifferences) {
  const check::ScoreGradient gradient = SomeGradient();
  Token token;
  const check::IndexerRow row = check::ComputeIndexerRow(token.view());
  const check::GradientRow weights = check::ComputeWeightGradient(token.view(), row, gradient, DType::kF32);
  for (size_t g = 0; g < kHeads; ++g) {
    const double weight = token.weights[g];
    token.weights[g] = weight + 1;
    const double after = token.Weighted(gradient);
    token.weights[g] = weight;
    EXPECT_NEAR(weights.value[g], after - token.Weighted(gradient), 0x1p-48) << "the scores are linear in it";
  }
  for (int64_t g = 0; g < kHeads; ++g) {
    const check::GradientRow dq = check::ComputeIndexQueryGradient(token.view(), row, gradient, g);
    for (size_t c = 0; c < kD; ++c) {
      // The step is so small that no product of q and k changes its sign. So the scores are linear in q.
      float& q = token.q.values[static_cast<size_t>(g) * kD + c];
      const float before = q;
      constexpr float kStep = 0x1p-12F;
      q = before + kStep;
      const double up = token.Weighted(gradient), upper = static_cast<double>(q);
      q = before - kStep;
      const double down = token.Weighted(gradient), lower = static_cast<double>(q);
      q = before;
      // Sums of some ten terms are off by 2^-50 in double, and the step is 2^-11.
      EXPECT_NEAR(dq.value[c], (up - down) / (upper - lower), 0x1p-38) << g << ' ' << c;
    }
  }
}

// The gradient of a score is y - p, where y is the indexer's distribution and p is the target. If the statistics belong
// to the same selection, p adds up to 1, and the gradients add up to 0. Where p is 0, the gradient is y.
TEST(CheckIndexer, LossGradientIsTheDifferenceOfTwoDistributions) {
  const Token token;
  const Rows q(2, 0.4), k(kKeys + 2, 0.8);
  constexpr double kScale = 0.75;
  std::vector<float> max(2), sum(2);
  for (size_t h = 0; h < 2; ++h) {
    max[h] = 1;
    double total = 0;
    for (const int64_t key : token.keys) {
      double product = 0;
      for (size_t c = 0; c < kD; ++c) {
        product += static_cast<double>(q.values[h * kD + c]) *
                   static_cast<double>(k.values[static_cast<size_t>(key) * kD + c]);
      }
      total += std::exp(kScale * product - 1);
    }
    sum[h] = static_cast<float>(total);
  }
  const check::IndexerRow row = check::ComputeIndexerRow(token.view());
  const check::TargetToken target = {.q = q.view(), .k = k.view(), .max = max, .sum = sum, .scale = kScale};
  const check::ScoreGradient gradient = check::ComputeLossGradient(token.view(), row, target);
  double total = 0;
  for (const double d : gradient.value) total += d;
  EXPECT_NEAR(total, 0, 0x1p-24) << "sums are floats";

  const std::vector<float> nothing = {INFINITY, INFINITY};
  const check::ScoreGradient y =
      check::ComputeLossGradient(token.view(), row, {.q = q.view(), .k = k.view(), .max = max, .sum = nothing});
  double score_sum = 0;
  for (const double score : row.score) score_sum += std::exp(score);
  for (size_t j = 0; j < kKeys; ++j) EXPECT_NEAR(y.value[j], std::exp(row.score[j]) / score_sum, 0x1p-48);
}

}  // namespace
}  // namespace fa::test
