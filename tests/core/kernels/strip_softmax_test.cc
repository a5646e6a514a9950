// Compares the softmax with computations in double, for every set of strip kernels in the registry, on every level that
// this CPU has.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

class StripSoftmaxTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Registry, StripSoftmaxTest, testing::ValuesIn(Levels()), LevelName);

TEST_P(StripSoftmaxTest, OverBlocksEqualsTheWholeRow) {
  const auto check = [&](int64_t keys) {
    constexpr int kBlocks = 3;
    constexpr float kFactor = 0.7f;
    Matrix row_max(1, width(), width(), 0), row_sum(1, width(), width(), 0), alpha(1, width(), width(), 0);
    for (int64_t lane = 0; lane < width(); ++lane) row_max.at(0, lane) = -kInf, row_sum.at(0, lane) = 0;
    std::vector<double> total(static_cast<size_t>(width()), 0.0);
    std::vector<Matrix> raw;
    for (int b = 0; b < kBlocks; ++b) {
      raw.emplace_back(keys, width(), width(), 20 + b);
      Matrix& s = raw.back();
      for (int64_t r = 0; r < keys; ++r) s.at(r, 0) = b == 0 ? -kInf : s.at(r, 0);  // lane 0 has no key in block 0
    }
    for (int b = 0; b < kBlocks; ++b) {
      Matrix s = raw[static_cast<size_t>(b)];
      Matrix block_max(1, width(), width(), 0);
      for (int64_t lane = 0; lane < width(); ++lane) block_max.at(0, lane) = -kInf;
      kernels().passes.block_max(s.data(), keys, block_max.data());
      kernels().softmax(s.data(), keys, kFactor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
      for (int64_t lane = 0; lane < width(); ++lane) {
        if (b == 0 && lane == 0) {
          for (int64_t r = 0; r < keys; ++r) ASSERT_EQ(s.at(r, 0), 0.0f);
          ASSERT_EQ(row_sum.at(0, 0), 0.0f);
          continue;
        }
        for (int64_t r = 0; r < keys; ++r) {
          const double x =
              kFactor * (static_cast<double>(raw[static_cast<size_t>(b)].at(r, lane)) - row_max.at(0, lane));
          // The exponent has the rounding error of factor * max, and |factor * s| < 8 in this test.
          ASSERT_NEAR(s.at(r, lane), std::exp2(x), 16 * kEps * std::exp2(x));
        }
      }
    }
    for (int64_t lane = 0; lane < width(); ++lane) {
      float largest = -kInf;
      for (const Matrix& s : raw) {
        for (int64_t r = 0; r < keys; ++r) largest = std::max(largest, s.at(r, lane));
      }
      ASSERT_EQ(row_max.at(0, lane), largest);
      double want = 0;
      for (const Matrix& s : raw) {
        for (int64_t r = 0; r < keys; ++r) want += std::exp2(kFactor * (static_cast<double>(s.at(r, lane)) - largest));
      }
      ASSERT_NEAR(row_sum.at(0, lane), want, want * kEps * (16 + 3 * kBlocks + static_cast<double>(keys)));
    }
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 8, 9, 30}});
}

TEST_P(StripSoftmaxTest, WithDropoutSelectsWhatSoftmaxLeaves) {
  for (const int64_t keys : {1, 2, 5, 31, 32, 33, 70}) {
    Matrix plain(keys, width(), width(), 43), row_max(1, width(), width(), 44), row_sum = row_max, alpha = row_max;
    Matrix block_max = RowOf(width(), -kInf);
    row_sum = RowOf(width(), 1.0f);
    kernels().passes.block_max(plain.data(), keys, block_max.data());
    Matrix dropped = plain, max_of_dropped = row_max, sum_of_dropped = row_sum, alpha_of_dropped = alpha;
    std::vector<uint32_t> words(static_cast<size_t>(CeilDiv(keys, kKeepBits) * width()));
    std::mt19937 random(46);
    for (uint32_t& word : words) word = random();
    constexpr float kMultiplier = 1.25f;
    kernels().softmax(plain.data(), keys, 0.5f, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    kernels().softmax_dropout({dropped.data(), keys, 0.5f, block_max.data(), max_of_dropped.data(),
                               sum_of_dropped.data(), alpha_of_dropped.data()},
                              {words.data(), kMultiplier});
    for (int64_t lane = 0; lane < width(); ++lane) {
      ASSERT_EQ(max_of_dropped.at(0, lane), row_max.at(0, lane));
      ASSERT_EQ(sum_of_dropped.at(0, lane), row_sum.at(0, lane));
      ASSERT_EQ(alpha_of_dropped.at(0, lane), alpha.at(0, lane));
      for (int64_t r = 0; r < keys; ++r) {
        const bool kept = (words[static_cast<size_t>(r / kKeepBits * width() + lane)] >> r % kKeepBits & 1u) != 0;
        ASSERT_EQ(dropped.at(r, lane), kept ? plain.at(r, lane) * kMultiplier : 0.0f) << r;
      }
    }
    ASSERT_TRUE(plain.Intact() && dropped.Intact());
  }
}

TEST_P(StripSoftmaxTest, WritesZeroForASubnormalProbability) {
  // The largest score is 0. The exact probabilities of the others are 2^-126, a little less than 2^-126, 2^-149 (the
  // smallest subnormal number), and 2^-200.
  constexpr float kScores[] = {0.0f, -126.0f, -126.01f, -149.0f, -200.0f};
  constexpr int64_t kKeys = 5;
  Matrix s(kKeys, width(), width(), 30), row_max(1, width(), width(), 0), row_sum = row_max, alpha = row_max;
  Matrix block_max(1, width(), width(), 0);
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kScores[r];
    row_max.at(0, lane) = -130.0f;  // the maximum of earlier keys, so that alpha is subnormal too
    block_max.at(0, lane) = 0.0f;
    row_sum.at(0, lane) = 1.0f;
  }
  Matrix gradient = s;
  const Matrix scores = s;
  kernels().softmax(s.data(), kKeys, 1.0f, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
  for (int64_t lane = 0; lane < width(); ++lane) {
    EXPECT_EQ(s.at(0, lane), 1.0f);
    EXPECT_EQ(s.at(1, lane), 0x1p-126f);
    for (int64_t r = 2; r < kKeys; ++r) EXPECT_EQ(s.at(r, lane), 0.0f) << r;
    EXPECT_EQ(alpha.at(0, lane), 0.0f);
    EXPECT_EQ(row_sum.at(0, lane), 1.0f);
  }
  s = scores;
  std::vector<float> none(static_cast<size_t>(width()), 0.0f);
  kernels().backward_softmax(s.data(), gradient.data(), kKeys, 1.0f, none.data(), none.data());
  for (int64_t lane = 0; lane < width(); ++lane) {
    EXPECT_EQ(s.at(1, lane), 0x1p-126f);
    for (int64_t r = 2; r < kKeys; ++r) {
      EXPECT_EQ(s.at(r, lane), 0.0f) << r;
      EXPECT_EQ(gradient.at(r, lane), 0.0f) << r;
    }
  }
}

// The probability of the largest score is exactly 1, whatever the score and the factor are. So a row that looks at a
// single key gets exactly that key's row of V.
TEST_P(StripSoftmaxTest, OfTheLargestScoreIsExactlyOne) {
  constexpr int64_t kKeys = 3;
  std::mt19937 random(63);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (int exponent = -20; exponent < 40; exponent += 3) {
    const float factor = mantissa(random);
    Matrix s(kKeys, width(), width(), 64), alpha(1, width(), width(), 65);
    Matrix row_max = RowOf(width(), kMaskedScore), row_sum = RowOf(width(), 0), block_max = row_max;
    const auto softmax = [&] {
      block_max = RowOf(width(), kMaskedScore);
      kernels().passes.block_max(s.data(), kKeys, block_max.data());
      kernels().softmax(s.data(), kKeys, factor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    };
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kMaskedScore;
      s.at(lane % kKeys, lane) = std::ldexp(mantissa(random), exponent) * (lane % 2 == 0 ? 1.0f : -1.0f);
    }
    softmax();
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) EXPECT_EQ(s.at(r, lane), r == lane % kKeys ? 1.0f : 0.0f) << exponent;
      EXPECT_EQ(row_sum.at(0, lane), 1.0f) << exponent;
      for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kMaskedScore;
    }
    softmax();  // a pass in which all keys are masked
    for (int64_t lane = 0; lane < width(); ++lane) {
      EXPECT_EQ(alpha.at(0, lane), 1.0f) << exponent;
      EXPECT_EQ(row_sum.at(0, lane), 1.0f) << exponent;
    }
  }
}

TEST_P(StripSoftmaxTest, OfLargeScoresIsRelativeToTheMaximum) {
  constexpr int64_t kKeys = 5;
  constexpr float kLarge = 0x1.8p40f, kFactor = 1.4426950f;
  const auto softmax = [&](bool large, float old_max, Matrix& s, Matrix& row_sum) {
    Matrix row_max(1, width(), width(), 0), alpha = row_max, block_max = row_max;
    s = Matrix(kKeys, width(), width(), 60);
    row_sum = row_max;
    for (int64_t lane = 0; lane < width(); ++lane) {
      const bool large_lane = large && lane % 3 == 0;
      for (int64_t r = 0; r < kKeys; ++r) {
        const float usual = 0.25f * static_cast<float>(r % 4) - 0.125f * static_cast<float>(lane % 2);
        s.at(r, lane) = large_lane ? kLarge * (r % 2 == 0 ? 1.0f : 0.5f) : usual;
      }
      block_max.at(0, lane) = large_lane ? kLarge : 0.75f - 0.125f * static_cast<float>(lane % 2);
      row_max.at(0, lane) = large_lane ? old_max : -1.0f;
      row_sum.at(0, lane) = 2.0f;
    }
    kernels().softmax(s.data(), kKeys, kFactor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    for (int64_t lane = 0; large && lane < width(); lane += 3) {
      EXPECT_EQ(row_max.at(0, lane), kLarge);
      EXPECT_EQ(alpha.at(0, lane), old_max == kLarge ? 1.0f : 0.0f) << old_max;
    }
  };
  Matrix s(1, 1, 1, 0), sum = s, usual = s, usual_sum = s;
  softmax(false, -1.0f, usual, usual_sum);
  for (const float old_max : {kMaskedScore, -1.0f, 0x1p39f, kLarge}) {
    softmax(true, old_max, s, sum);
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) {
        const float want = lane % 3 != 0 ? usual.at(r, lane) : r % 2 == 0 ? 1.0f : 0.0f;
        EXPECT_EQ(std::bit_cast<uint32_t>(s.at(r, lane)), std::bit_cast<uint32_t>(want)) << lane << " " << r;
      }
      EXPECT_EQ(sum.at(0, lane), lane % 3 != 0 ? usual_sum.at(0, lane) : old_max == kLarge ? 5.0f : 3.0f) << lane;
    }
  }
}

TEST_P(StripSoftmaxTest, OfLargeScoresThatAreNearHasTheirProbabilities) {
  constexpr int64_t kKeys = 4;
  constexpr float kFactor = 1.4426950f;
  for (const float max : {0x1p10f, 0x1.62e42p19f, 0x1p21f, -0x1p21f}) {
    Matrix s(kKeys, width(), width(), 62), row_max(1, width(), width(), 0), row_sum = row_max, alpha = row_max;
    std::vector<float> block_max(static_cast<size_t>(width()), max);
    constexpr float kBelow[] = {0.5f, 0.0f, 3.0f, std::numeric_limits<float>::infinity()};
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = max - kBelow[r];
      row_max.at(0, lane) = max - 1;
      row_sum.at(0, lane) = 1;
    }
    kernels().softmax(s.data(), kKeys, kFactor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    // The exponent, at most 3 log2(e), is rounded once; the exponential is off by 2 ulp.
    constexpr double kError = 4 * kEps;
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t r = 0; r < kKeys; ++r) {
        const double want = std::exp2(-static_cast<double>(kFactor) * kBelow[r]);
        ASSERT_NEAR(s.at(r, lane), want, kError * want) << max << " " << r;
      }
      ASSERT_NEAR(alpha.at(0, lane), std::exp2(-static_cast<double>(kFactor)), kError) << max;
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
