// Compares the indexer's kernels of every level that this CPU has with computations in double. Some numbers of heads
// and keys are not multiples of the vector width. The contents of unused lanes must not matter.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

/// Returns the levels of this CPU that have their own indexer kernels.
std::vector<Isa> IndexerLevels() {
  std::vector<Isa> levels;
  for (const Isa isa : AllIsas()) {
    const auto same = [isa](Isa other) { return &IndexerKernelsFor(other) == &IndexerKernelsFor(isa); };
    if (Includes(DetectIsa(), isa) && std::none_of(levels.begin(), levels.end(), same)) levels.push_back(isa);
  }
  return levels;
}

class IndexerKernelsTest : public testing::TestWithParam<Isa> {
 protected:
  [[nodiscard]] static const IndexerKernels& kernels() { return IndexerKernelsFor(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Levels, IndexerKernelsTest, testing::ValuesIn(IndexerLevels()),
                         [](const auto& info) { return Name(info.param); });

double Relu(double x) { return std::isnan(x) ? x : std::fmax(0, x); }

TEST_P(IndexerKernelsTest, AddHeadsIsTheWeightedSumOfPositiveScores) {
  const auto check = [&](int64_t width, int64_t heads, bool accumulate) {
    const Matrix s(heads, width, width, 1), weight(1, heads, heads, 2);
    Matrix sum(1, width, width, 3, 5);
    const Matrix before = sum;
    kernels().add_heads(s.values(), heads, width, weight.values(), accumulate, sum.data());
    ExpectSums(
        sum, width, heads, heads + 1, [&](int64_t, int64_t lane) { return accumulate ? before.at(0, lane) : 0.0; },
        [&](int64_t, int64_t lane, int64_t head) { return double{weight.at(0, head)} * Relu(s.at(head, lane)); });
  };
  ForEachCase(check, Axis{"width", {16, 32, 48, 64}}, Axis{"heads", {1, 2, 7, 64}}, Axis{"accumulate", {false, true}});
}

TEST_P(IndexerKernelsTest, SumLanesIsTheWeightedSumOfTheLanesInUse) {
  const auto check = [&](int64_t width, int64_t unused, int64_t keys, bool relu, bool accumulate) {
    const int64_t heads = width - unused;
    Matrix s(keys, width, width, 1), sum(1, keys, keys, 3, 1);
    const Matrix weight(1, heads, heads, 2), before = sum;
    // Unused lanes must not contribute: a NaN times 0 would be NaN.
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = heads; lane < width; ++lane) s.at(key, lane) = kNan;
    }
    kernels().sum_lanes(s.values(), keys, width, heads, weight.values(), relu, accumulate, sum.data());
    ExpectSums(
        sum, keys, heads, heads + 1, [&](int64_t, int64_t key) { return accumulate ? before.at(0, key) : 0.0; },
        [&](int64_t, int64_t key, int64_t lane) {
          return double{weight.at(0, lane)} * (relu ? Relu(s.at(key, lane)) : s.at(key, lane));
        });
  };
  for (const int64_t width : {16, 32, 48}) {
    ForEachCase(check, Axis{"width", {width}}, Axis<int64_t>{"unused", {width - 1, width - 5, 7, 0}},
                Axis{"keys", {1, 3, 15, 16, 17, 40}}, Axis{"relu", {false, true}}, Axis{"accumulate", {false, true}});
  }
}

TEST_P(IndexerKernelsTest, KeysAndHeadsAlongTheLanesGiveTheSameBits) {
  // 70 heads fill two tiles of 32 lanes and 6 lanes of a third.
  constexpr int64_t kHeads = 70, kKeys = 48, kWidth = 32;
  const Matrix s(kHeads, kKeys, kKeys, 1), weight(1, kHeads, kHeads, 2);
  std::vector<float> by_heads(kKeys), by_lanes(kKeys), tile(static_cast<size_t>(kKeys * kWidth));
  kernels().add_heads(s.values(), kHeads, kKeys, weight.values(), false, by_heads.data());
  for (int64_t first = 0; first < kHeads; first += kWidth) {
    const int64_t heads = std::min(kWidth, kHeads - first);
    for (int64_t key = 0; key < kKeys; ++key) {
      for (int64_t lane = 0; lane < heads; ++lane) {
        tile[static_cast<size_t>(key * kWidth + lane)] = s.at(first + lane, key);
      }
    }
    kernels().sum_lanes(tile.data(), kKeys, kWidth, heads, weight.values() + first, true, first > 0, by_lanes.data());
  }
  EXPECT_EQ(by_heads, by_lanes);
}

TEST_P(IndexerKernelsTest, ANotANumberStaysOne) {
  constexpr int64_t kWidth = 16;
  std::vector<float> s(kWidth, -1), weight(kWidth, 1), sum(kWidth);
  s[3] = kNan;
  kernels().add_heads(s.data(), 1, kWidth, weight.data(), false, sum.data());
  for (size_t lane = 0; lane < kWidth; ++lane) EXPECT_EQ(std::isnan(sum[lane]), lane == 3);
  for (const bool relu : {false, true}) {
    kernels().sum_lanes(s.data(), 1, kWidth, kWidth, weight.data(), relu, false, sum.data());
    EXPECT_TRUE(std::isnan(sum[0]));
  }
}

TEST_P(IndexerKernelsTest, ProbabilitiesArePowersOfTwo) {
  const auto check = [&](int64_t width, int64_t keys) {
    Matrix s(keys, width, width, 1), shift(1, width, width, 2);
    shift.at(0, 1) = kInf;
    s.at(0, 2) = kNan;
    const Matrix before = s;
    const float factor = 1.7F;
    kernels().probabilities(s.data(), keys, width, factor, shift.values());
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width; ++lane) {
        const float got = s.at(key, lane);
        if (lane == 2 && key == 0) {
          ASSERT_TRUE(std::isnan(got));
          continue;
        }
        const double exponent = static_cast<double>(factor) * before.at(key, lane) - shift.at(0, lane);
        // The power is off by 2 ulp. Its argument is rounded once with FMA, and twice without.
        const double argument =
            std::isinf(exponent) ? 0 : 2 * std::fabs(factor * before.at(key, lane)) + std::fabs(exponent);
        ASSERT_NEAR(got, std::exp2(exponent), (2 + argument) * kEps * std::exp2(exponent));
      }
    }
    ASSERT_TRUE(s.Intact());
  };
  ForEachCase(check, Axis{"width", {16, 48}}, Axis{"keys", {1, 3, 20}});
}

TEST_P(IndexerKernelsTest, ProbabilitiesAreWithinTwoUlpOverTheWholeRange) {
  constexpr int64_t kWidth = 16;
  std::vector<float> x;
  // The arguments are all multiples of 1/1024, among them halves and integers, and every 4096th float.
  for (int64_t i = -130 * 1024; i <= 128 * 1024; ++i) x.push_back(static_cast<float>(i) / 1024);
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(130.0F); bits += 4096) {
    const auto value = std::bit_cast<float>(bits);
    x.push_back(-value);
    if (value <= 128) x.push_back(value);
  }
  // The floats on both sides of each end of the range are tested too.
  for (const float end : {-126.0F, 127.5F}) {
    for (const float to : {-kInf, kInf}) x.push_back(std::nextafter(end, to));
  }
  x.resize((x.size() + kWidth - 1) / kWidth * kWidth);
  std::vector<float> y = x;
  const std::vector<float> shift(kWidth);
  kernels().probabilities(y.data(), std::ssize(x) / kWidth, kWidth, 1, shift.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (x[i] < -126) {
      ASSERT_EQ(y[i], 0) << "subnormal: x = " << x[i];
    } else if (x[i] <= 127.5F || !std::isinf(y[i])) {
      // Beyond 127.5 some levels overflow, because they compute 2^128 times a power with a negative exponent. Other
      // levels do not overflow.
      ASSERT_NEAR(y[i], want, 2 * std::ldexp(1.0, std::ilogb(want) - 23)) << "x = " << x[i];
    } else {
      ASSERT_GT(y[i], 0) << "x = " << x[i];
    }
    if (x[i] == std::floor(x[i]) && x[i] >= -126 && x[i] <= 127) {
      ASSERT_EQ(y[i], want) << "a power of two is exact: x = " << x[i];
    }
  }
}

TEST_P(IndexerKernelsTest, ReluGradientIsThatOfTheWeightedSum) {
  const auto check = [&](int64_t width, int64_t keys) {
    Matrix s(keys, width, width, 1), d_weight(1, width, width, 4);
    s.at(0, 1) = 0;  // for a score of 0, ReLU's gradient is 0, as on the device
    s.at(0, 2) = -0.0F;
    const Matrix before = s, weight(1, width, width, 2), d_value(1, keys, keys, 3), d_before = d_weight;
    kernels().relu_gradient(s.data(), keys, width, weight.values(), d_value.values(), d_weight.data());
    ExpectSums(
        d_weight, width, keys, keys + 1, [&](int64_t, int64_t lane) { return double{d_before.at(0, lane)}; },
        [&](int64_t, int64_t lane, int64_t key) { return d_value.at(0, key) * Relu(before.at(key, lane)); });
    for (int64_t lane = 0; lane < width; ++lane) {
      for (int64_t key = 0; key < keys; ++key) {
        const float passed = before.at(key, lane) > 0 ? weight.at(0, lane) * d_value.at(0, key) : 0;
        ASSERT_EQ(s.at(key, lane), passed);
      }
    }
    ASSERT_TRUE(s.Intact());
  };
  ForEachCase(check, Axis{"width", {16, 48}}, Axis{"keys", {1, 2, 19}});
}

/// Returns scores that include ties, both zeros, infinities and NaN.
std::vector<float> MixedScores(int64_t n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Matrix values(1, n, n, 11);
  std::vector<float> scores(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const std::array<float, 6> special{0.0F, -0.0F, kInf, -kInf, std::nanf(""), -std::nanf("")};
    scores[static_cast<size_t>(i)] = i % 3 == 1 ? special[static_cast<size_t>(i / 3 % 6)] : values.at(0, i);
  }
  return scores;
}

constexpr int64_t kTails[] = {1, 2, 15, 16, 17, 31, 33, 100};

TEST_P(IndexerKernelsTest, KeysAscendWhereScoresDescend) {
  for (const int64_t n : kTails) {
    const std::vector<float> scores = MixedScores(n);
    std::vector<uint32_t> keys(static_cast<size_t>(n + 1), 77);
    kernels().order_scores(scores.data(), n, keys.data());
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_EQ(keys[i] == 0xffffffff, std::isnan(scores[i])) << i << " of " << n;
      for (size_t j = 0; j < scores.size(); ++j) {
        if (std::isnan(scores[i]) || std::isnan(scores[j])) continue;
        const bool before = keys[i] < keys[j];
        ASSERT_EQ(before, scores[i] > scores[j]) << i << " and " << j << " of " << n;
      }
    }
    ASSERT_EQ(keys.back(), 77);
  }
}

TEST_P(IndexerKernelsTest, ScoresWithinAreTheKeysOfAnIntervalInOrder) {
  const auto check = [&](int64_t n, int first_case, int last_case) {
    const std::vector<float> scores = MixedScores(n);
    std::vector<uint32_t> all(static_cast<size_t>(n));
    kernels().order_scores(scores.data(), n, all.data());
    const uint32_t first = std::array{0u, all[0], 0x7fffffffu}.at(first_case);
    const uint32_t last = std::array{first, all[static_cast<size_t>(n / 2)], 0xffffffffu}.at(last_case);
    if (last < first) return;
    std::vector<uint32_t> want_keys;
    std::vector<int32_t> want;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] < first || all[i] > last) continue;
      want_keys.push_back(all[i]);
      want.push_back(static_cast<int32_t>(i));
    }
    const size_t room = static_cast<size_t>(n + IndexerKernels::kKeysBehind);
    std::vector<uint32_t> keys(room + 1, 77);
    std::vector<int32_t> indices(room + 1, 77);
    const int64_t found = kernels().scores_within(scores.data(), n, first, last, keys.data(), indices.data());
    ASSERT_EQ(found, static_cast<int64_t>(want.size()));
    ASSERT_EQ(keys.back(), 77);
    ASSERT_EQ(indices.back(), 77);
    keys.resize(want.size());
    indices.resize(want.size());
    ASSERT_EQ(keys, want_keys);
    ASSERT_EQ(indices, want);
    const int64_t up_to = std::count_if(all.begin(), all.end(), [&](uint32_t key) { return key <= last; });
    ASSERT_EQ(kernels().keys_up_to(all.data(), n, last), up_to);
  };
  ForEachCase(check, Axis{"n", kTails}, Axis{"first", {0, 1, 2}}, Axis{"last", {0, 1, 2}});
}

TEST_P(IndexerKernelsTest, BucketsAreStepsOfTheBitsAboveTheFloor) {
  for (const int64_t n : kTails) {
    std::vector<float> scores = MixedScores(n);
    std::replace_if(
        scores.begin(), scores.end(), [](float x) { return std::isnan(x); }, 0.25F);
    std::vector<uint32_t> keys(scores.size());
    kernels().order_scores(scores.data(), n, keys.data());
    for (const float rise : {0.0F, 0.125F}) {
      const KeyBuckets buckets{
          .floor = -0.5F, .rise = rise, .top = std::bit_cast<int32_t>(1.25F), .shift = 18, .last = 60};
      std::vector<uint16_t> bucket(scores.size() + 1, 777);
      kernels().bucket_keys(keys.data(), n, buckets, bucket.data());
      for (size_t i = 0; i < scores.size(); ++i) {
        const float height = std::max(scores[i] - buckets.floor, 0.0F) + rise;
        const int32_t depth = std::max(buckets.top - std::bit_cast<int32_t>(height), 0) >> buckets.shift;
        ASSERT_EQ(bucket[i], std::min(depth, buckets.last)) << scores[i] << " rise " << rise;
      }
      ASSERT_EQ(bucket.back(), 777);
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
