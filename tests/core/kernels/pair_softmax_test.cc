// Compares the softmax of bf16 pairs, and P and dS of the backward, with computations in double. Operands are bf16, so
// every product of two operands is exact in f32, and only the sums round.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/pair_fixture.h"

namespace fa::core::kernels {
namespace {

class PairSoftmaxTest : public OnPairs {};

INSTANTIATE_TEST_SUITE_P(Registry, PairSoftmaxTest, testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Emulated, PairSoftmaxTest, testing::Values(3));
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, PairSoftmaxTest, testing::Values(6, 7));

TEST_P(PairSoftmaxTest, WritesZeroForASubnormalProbability) {
  constexpr float kScores[] = {0.0f, -126.0f, -126.01f, -149.0f};
  constexpr int64_t kKeys = 4;
  Matrix s(kKeys, width(), width(), 30), row_max(1, width(), width(), 0), row_sum = row_max, alpha = row_max;
  std::vector<float> block_max(static_cast<size_t>(width()), 0.0f);
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kScores[r];
    row_max.at(0, lane) = 0.0f;
    row_sum.at(0, lane) = 0.0f;
  }
  kernels().softmax(s.data(), kKeys, 1.0f, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
  kernels().pairs.unpair_keys(s.data(), kKeys);
  for (int64_t lane = 0; lane < width(); ++lane) {
    EXPECT_EQ(s.at(0, lane), 1.0f);
    EXPECT_EQ(s.at(1, lane), 0x1p-126f);
    EXPECT_EQ(s.at(2, lane), 0.0f);
    EXPECT_EQ(s.at(3, lane), 0.0f);
  }
}

TEST_P(PairSoftmaxTest, OfLargeScoresIsRelativeToTheMaximum) {
  constexpr int64_t kKeys = 5;
  constexpr float kLarge = 0x1.8p40f;
  Matrix s(kKeys, width(), width(), 61), row_max(1, width(), width(), 0), row_sum = row_max, alpha = row_max;
  std::vector<float> block_max(static_cast<size_t>(width()), kLarge);
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = r % 2 == 0 ? kLarge : 0.5f * kLarge;
    row_max.at(0, lane) = lane % 2 == 0 ? kLarge : 1.0f;
    row_sum.at(0, lane) = 2.0f;
  }
  kernels().softmax(s.data(), kKeys, 1.4426950f, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
  kernels().pairs.unpair_keys(s.data(), kKeys);
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t r = 0; r < kKeys; ++r) EXPECT_EQ(s.at(r, lane), r % 2 == 0 ? 1.0f : 0.0f) << lane << " " << r;
    EXPECT_EQ(alpha.at(0, lane), lane % 2 == 0 ? 1.0f : 0.0f) << lane;
    EXPECT_EQ(row_sum.at(0, lane), lane % 2 == 0 ? 5.0f : 3.0f) << lane;
  }
}

// In kernels of pairs, the probability of the largest score may differ from 1, because factor * max is rounded. The
// difference is below 2^-9, so that bf16 rounds the probability to 1.
TEST_P(PairSoftmaxTest, OfTheLargestScoreIsOneForAResultOfSixteenBits) {
  constexpr int64_t kKeys = 3;
  std::mt19937 random(63);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (int exponent = -3; exponent < 40; ++exponent) {
    const float factor = mantissa(random);
    Matrix s(kKeys, width(), width(), 64);
    const auto lanes = static_cast<size_t>(width());
    std::vector<float> block_max(lanes, kMaskedScore), row_max = block_max, row_sum(lanes, 0.0f), alpha(lanes, kNan);
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kMaskedScore;
      s.at(lane % kKeys, lane) = std::ldexp(mantissa(random), exponent) * (lane % 2 == 0 ? 1.0f : -1.0f);
    }
    kernels().passes.block_max(s.data(), kKeys, block_max.data());
    kernels().softmax(s.data(), kKeys, factor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    kernels().pairs.unpair_keys(s.data(), kKeys);
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) EXPECT_EQ(s.at(r, lane), r == lane % kKeys ? 1.0f : 0.0f) << exponent;
      EXPECT_NEAR(row_sum[static_cast<size_t>(lane)], 1, 0.99 * 0x1p-9) << exponent;
    }
  }
}

TEST_P(PairSoftmaxTest, RoundsProbabilitiesAndDropsThemForEveryTail) {
  std::mt19937 random(44);
  constexpr float kMultiplier = 1.25f;
  for (const int64_t keys : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 31, 32, 33, 34, 35, 36, 71}) {
    Matrix words(keys, width(), width(), 43);
    const Matrix scores = words;
    Matrix dropped = words;
    constexpr float kOldMax = -1.0f, kOldSum = 2.0f, kFactor = 0.5f;
    std::vector<float> block_max(static_cast<size_t>(width()), kMaskedScore), alpha(block_max);
    kernels().passes.block_max(words.data(), keys, block_max.data());
    std::vector<float> row_max(static_cast<size_t>(width()), kOldMax), row_sum(static_cast<size_t>(width()), kOldSum);
    std::vector<float> max_dropped = row_max, sum_dropped = row_sum, alpha_dropped = alpha;
    std::vector<uint32_t> keep(static_cast<size_t>(CeilDiv(keys, kKeepBits) * width()));
    for (uint32_t& word : keep) word = random();
    kernels().softmax(words.data(), keys, kFactor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    kernels().softmax_dropout(
        {dropped.data(), keys, kFactor, block_max.data(), max_dropped.data(), sum_dropped.data(), alpha_dropped.data()},
        {keep.data(), kMultiplier});
    ASSERT_TRUE(words.Intact() && dropped.Intact());
    EXPECT_EQ(max_dropped, row_max);
    EXPECT_EQ(sum_dropped, row_sum);
    EXPECT_EQ(alpha_dropped, alpha);
    kernels().pairs.unpair_keys(words.data(), keys);
    kernels().pairs.unpair_keys(dropped.data(), keys);
    // Relative errors of a probability before it is rounded to bf16, and after.
    constexpr float kShort = 5e-6f, kHalf = 0x1p-8f + 1e-5f;
    for (int64_t lane = 0; lane < width(); ++lane) {
      const auto i = static_cast<size_t>(lane);
      const float max = std::max(kOldMax, block_max[i]);
      EXPECT_EQ(row_max[i], max);
      const double scale = std::exp2(kFactor * (static_cast<double>(kOldMax) - max));
      EXPECT_NEAR(alpha[i], scale, kShort * scale);
      double sum = scale * kOldSum;
      for (int64_t r = 0; r < keys; ++r) {
        const double p = std::exp2(kFactor * (static_cast<double>(scores.at(r, lane)) - max));
        sum += p;
        ASSERT_NEAR(words.at(r, lane), p, kHalf * p) << keys << " " << r;
        const bool kept = (keep[static_cast<size_t>(r / kKeepBits * width() + lane)] >> r % kKeepBits & 1u) != 0;
        ASSERT_NEAR(dropped.at(r, lane), kept ? kMultiplier * p : 0.0, kept ? kHalf * kMultiplier * p : 0.0) << r;
      }
      EXPECT_NEAR(row_sum[i], sum, kShort * sum);
    }
  }
}

TEST_P(PairSoftmaxTest, PairsOfABackwardHaveTheBitsOfItsSoftmaxRoundedApart) {
  constexpr float kFactor = 0.5f;
  const auto check = [&](int64_t keys, float multiplier, bool drops) {
    Matrix s(keys, width(), width(), 30), dp(keys, width(), width(), 31);
    Matrix shift(1, width(), width(), 32), delta(1, width(), width(), 33);
    s.at(keys - 1, 0) = kMaskedScore;
    dp.at(keys - 1, 0) = kNan;
    shift.at(0, width() - 1) = kInf;
    std::vector<uint32_t> keep(static_cast<size_t>(CeilDiv(keys, kKeepBits) * width()));
    std::mt19937 random(34);
    for (uint32_t& word : keep) word = random();
    const KeepArgs kept = drops ? KeepArgs{keep.data(), 1.25f} : KeepArgs{};
    Matrix p = s, ds = dp;
    if (kept.words == nullptr) {
      kernels().backward_softmax(p.data(), ds.data(), keys, kFactor, shift.data(), delta.data());
    } else {
      kernels().backward_softmax_dropout(p.data(), ds.data(), keys, kFactor, shift.data(), delta.data(), kept);
    }
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) ds.at(key, lane) *= multiplier;
    }
    const int64_t half = keys * width() / 2, words = CeilDiv(keys, 2) * width();
    Matrix p_lanes(1, half, half, 35), ds_lanes = p_lanes, ds_keys(1, words, words, 36);
    Matrix want_p = p_lanes, want_ds = p_lanes, want_keys = ds_keys;
    kernels().pairs.pair_lanes(p.data(), keys, want_p.data());
    kernels().pairs.pair_lanes(ds.data(), keys, want_ds.data());
    kernels().pairs.pair_keys(ds.data(), keys, want_keys.data());
    Matrix scores = s, gradients = dp;
    kernels().pairs.backward_pairs({.s = scores.data(),
                                    .dp = gradients.data(),
                                    .keys = keys,
                                    .factor = kFactor,
                                    .shift = shift.data(),
                                    .delta = delta.data(),
                                    .keep = kept,
                                    .ds_multiplier = multiplier,
                                    .p_lanes = p_lanes.data(),
                                    .ds_lanes = ds_lanes.data(),
                                    .ds_keys = ds_keys.data()});
    EXPECT_TRUE(SameBits(p_lanes, want_p));
    EXPECT_TRUE(SameBits(ds_lanes, want_ds));
    EXPECT_TRUE(SameBits(ds_keys, want_keys));
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 4, 5, 6, 7, 33, 64}}, Axis{"multiplier", {1.0f, 0.375f}},
              Axis{"drops", {false, true}});
}

}  // namespace
}  // namespace fa::core::kernels
