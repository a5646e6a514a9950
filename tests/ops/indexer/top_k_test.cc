// Compares the selection with a stable sort of all scores.

#include "ops/indexer/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/machine/cpu.h"

namespace fa::ops {
namespace {

using core::kernels::IndexerKernels;
using core::kernels::IndexerKernelsFor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> Select(const IndexerKernels& kernels, const std::vector<float>& scores, int64_t k) {
  const auto n = static_cast<int64_t>(scores.size());
  Carver count(nullptr);
  static_cast<void>(TopK(kernels, count, n, k));
  std::vector<std::byte> memory(count.used());
  Carver carver(memory.data());
  const TopK top_k(kernels, carver, n, k);
  std::vector<int32_t> indices(static_cast<size_t>(k), -7);
  const int64_t selected = top_k.Select(scores.data(), n, indices.data());
  EXPECT_EQ(selected, std::min(k, n));
  EXPECT_EQ(std::count(indices.begin() + selected, indices.end(), -7), k - selected) << "written past the last";
  indices.resize(static_cast<size_t>(selected));
  return indices;
}

/// Selects with the kernels of every level of this CPU, and expects the same indices from all.
std::vector<int32_t> Select(const std::vector<float>& scores, int64_t k) {
  const std::vector<int32_t> portable = Select(IndexerKernelsFor(Isa::kPortable), scores, k);
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    EXPECT_EQ(Select(IndexerKernelsFor(isa), scores, k), portable) << Name(isa) << " " << k << " of " << scores.size();
  }
  return portable;
}

std::vector<int32_t> Sorted(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return std::isnan(x) || std::isnan(y) ? std::isnan(y) && !std::isnan(x) : x > y;
  });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  return order;
}

void ExpectSorted(const std::vector<float>& scores) {
  const auto n = static_cast<int64_t>(scores.size());
  for (const int64_t k : {int64_t{1}, int64_t{2}, n / 4, n / 2, n - 1, n, n + 3}) {
    if (k <= 0) continue;
    ASSERT_EQ(Select(scores, k), Sorted(scores, k)) << k << " of " << n;
  }
}

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scores(static_cast<size_t>(n));
  for (float& score : scores) score = normal(random);
  return scores;
}

TEST(TopK, IsTheBeginningOfAStableSort) {
  for (const int64_t n : {1, 2, 3, 63, 127, 128, 129, 1000, 8192, 8193}) ExpectSorted(Normal(n, 1));
}

TEST(TopK, EqualScoresComeByAscendingIndex) {
  std::vector<float> scores = Normal(5000, 2);
  for (float& score : scores) score = std::round(score * 2) / 2;
  ExpectSorted(scores);
  ExpectSorted(std::vector<float>(3000, 0.0F));
  // Scores as ReLU leaves them: mostly zeros, and a few others.
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = i % 10 == 0 ? scores[i] : 0;
  ExpectSorted(scores);
}

TEST(TopK, NegativeZeroEqualsZero) {
  std::vector<float> scores(2000);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = i % 3 == 0 ? -0.0F : 0.0F;
  ExpectSorted(scores);
}

TEST(TopK, InfinitiesStandAtTheEndsAndNanBehindThem) {
  std::vector<float> scores = Normal(3000, 3);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i % 7 == 0) scores[i] = -kInf;
    if (i % 11 == 0) scores[i] = i % 2 == 0 ? kNan : -kNan;
    if (i % 501 == 0) scores[i] = kInf;
  }
  ExpectSorted(scores);
  ExpectSorted(std::vector<float>(300, kNan));
  ExpectSorted(std::vector<float>(300, -kInf));
}

TEST(TopK, FewFiniteScores) {
  for (const float most : {kNan, -kInf, kInf}) {
    std::vector<float> scores(2000, most);
    for (size_t i = 0; i < scores.size(); i += 40) scores[i] = static_cast<float>(i % 7) - 3;
    ExpectSorted(scores);
  }
}

TEST(TopK, ScoresThatTheSampleDoesNotShow) {
  // All large scores lie together, or at equal distances. The result must be right, whatever scores the kernel samples.
  for (const size_t distance : {1, 16, 17, 33}) {
    std::vector<float> scores = Normal(16000, 5);
    for (size_t i = 1; i < scores.size() && i < 500 * distance; i += distance) scores[i] += 100;
    ExpectSorted(scores);
  }
  std::vector<float> scores = Normal(100000, 6);
  ASSERT_EQ(Select(scores, 2048), Sorted(scores, 2048));
  std::sort(scores.begin(), scores.end());
  ASSERT_EQ(Select(scores, 2048), Sorted(scores, 2048));
  std::reverse(scores.begin(), scores.end());
  ASSERT_EQ(Select(scores, 70000), Sorted(scores, 70000));
}

TEST(TopK, OneFarScore) {
  for (const float far : {3e38F, -3e38F, kInf, -kInf, kNan}) {
    for (const size_t at : {0, 1, 4321}) {
      std::vector<float> scores = Normal(8192, 7);
      scores[at] = far;
      ExpectSorted(scores);
    }
  }
}

TEST(TopK, DifferencesThatOverflowOrAreSubnormal) {
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> scores = Normal(4000, 8);
  for (float& score : scores) score = std::clamp(score, -1.0F, 1.0F) * kMax;
  ExpectSorted(scores);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = i % 2 == 0 ? kMax : -kMax;
  ExpectSorted(scores);
  scores = Normal(4000, 9);
  for (float& score : scores) score *= 300 * std::numeric_limits<float>::denorm_min();
  ExpectSorted(scores);
}

TEST(TopK, ScoresOfEveryMagnitude) {
  std::vector<float> scores = Normal(6000, 4);
  scores[17] = std::numeric_limits<float>::max();
  scores[18] = std::numeric_limits<float>::lowest();
  scores[19] = std::numeric_limits<float>::denorm_min();
  ExpectSorted(scores);
  for (float& score : scores) score = std::exp(40 * score);
  ExpectSorted(scores);
  for (float& score : scores) score = 1 + std::fmod(score, 1.0F) * 0x1p-20F;
  ExpectSorted(scores);
}

TEST(TopK, NoScoresNoIndices) {
  EXPECT_TRUE(Select({}, 5).empty());
  EXPECT_TRUE(Select({1, 2}, 0).empty());
}

}  // namespace
}  // namespace fa::ops
