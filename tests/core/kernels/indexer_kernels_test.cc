// The indexer's kernels on every level this CPU has, against double: all tails of heads and keys, lanes out of use.

#include <cmath>
#include <string>
#include <vector>

#include "core/kernels/indexer_kernel_types.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

std::vector<const IndexerKernels*> IndexerLevels() {
  std::vector<const IndexerKernels*> levels;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= DetectIsa()) levels.push_back(&IndexerKernelsFor(isa));
  }
  return levels;
}

class IndexerKernelsTest : public testing::TestWithParam<const IndexerKernels*> {
 protected:
  [[nodiscard]] static const IndexerKernels& kernels() { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Levels, IndexerKernelsTest, testing::ValuesIn(IndexerLevels()),
                         [](const auto& info) { return std::string(info.param->name); });

double Relu(double x) { return std::isnan(x) ? x : std::fmax(0, x); }

TEST_P(IndexerKernelsTest, NameAndIsaStateTheFacts) {
  EXPECT_EQ(kernels().name, std::string("indexer_") + Name(kernels().isa));
}

TEST_P(IndexerKernelsTest, AddHeadsIsTheWeightedSumOfPositiveScores) {
  for (const int64_t width : {16, 32, 48, 64}) {
    for (const int64_t heads : {1, 2, 7, 64}) {
      const Matrix s(heads, width, width, 1), weight(1, heads, heads, 2);
      for (const bool accumulate : {false, true}) {
        Matrix sum(1, width, width, 3, 5);
        const Matrix before = sum;
        kernels().add_heads(s.values(), heads, width, weight.values(), accumulate, sum.data());
        for (int64_t lane = 0; lane < width; ++lane) {
          double want = accumulate ? before.at(0, lane) : 0, magnitude = std::fabs(want);
          for (int64_t head = 0; head < heads; ++head) {
            const double term = static_cast<double>(weight.at(0, head)) * Relu(s.at(head, lane));
            want += term;
            magnitude += std::fabs(term);
          }
          // A chain of `heads` operations, each rounding once (twice without FMA).
          ASSERT_NEAR(sum.at(0, lane), want, kEps * static_cast<double>(heads + 1) * magnitude)
              << "width " << width << " heads " << heads << " lane " << lane;
        }
        ASSERT_TRUE(sum.Intact());
      }
    }
  }
}

TEST_P(IndexerKernelsTest, SumLanesIsTheWeightedSumOfTheLanesInUse) {
  for (const int64_t width : {16, 32, 48}) {
    for (const int64_t heads : {int64_t{1}, int64_t{5}, width - 7, width}) {
      for (const int64_t keys : {1, 3, 15, 16, 17, 40}) {
        for (const bool relu : {false, true}) {
          for (const bool accumulate : {false, true}) {
            Matrix s(keys, width, width, 1), sum(1, keys, keys, 3, 1);
            const Matrix weight(1, heads, heads, 2), before = sum;
            // What lanes out of use hold must not count, not even times 0.
            for (int64_t key = 0; key < keys; ++key) {
              for (int64_t lane = heads; lane < width; ++lane) s.at(key, lane) = kNan;
            }
            kernels().sum_lanes(s.values(), keys, width, heads, weight.values(), relu, accumulate, sum.data());
            for (int64_t key = 0; key < keys; ++key) {
              double want = accumulate ? before.at(0, key) : 0, magnitude = std::fabs(want);
              for (int64_t lane = 0; lane < heads; ++lane) {
                const double x = s.at(key, lane);
                const double term = static_cast<double>(weight.at(0, lane)) * (relu ? Relu(x) : x);
                want += term;
                magnitude += std::fabs(term);
              }
              ASSERT_NEAR(sum.at(0, key), want, kEps * static_cast<double>(heads + 1) * magnitude)
                  << "width " << width << " heads " << heads << " keys " << keys << " key " << key;
            }
            ASSERT_TRUE(sum.Intact());
          }
        }
      }
    }
  }
}

TEST_P(IndexerKernelsTest, KeysAndHeadsAlongTheLanesGiveTheSameBits) {
  // 70 heads: three tiles of 32 lanes, the last one of 6.
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
  for (const int64_t width : {16, 48}) {
    for (const int64_t keys : {1, 3, 20}) {
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
          // 2 ulp of the power and the rounding of its argument, twice without FMA.
          const double argument =
              std::isinf(exponent) ? 0 : 2 * std::fabs(factor * before.at(key, lane)) + std::fabs(exponent);
          ASSERT_NEAR(got, std::exp2(exponent), (2 + argument) * kEps * std::exp2(exponent));
        }
      }
      ASSERT_TRUE(s.Intact());
    }
  }
}

TEST_P(IndexerKernelsTest, ReluGradientIsThatOfTheWeightedSum) {
  for (const int64_t width : {16, 48}) {
    for (const int64_t keys : {1, 2, 19}) {
      Matrix s(keys, width, width, 1), d_weight(1, width, width, 4);
      s.at(0, 1) = 0;  // the step of ReLU: no gradient, as the device
      s.at(0, 2) = -0.0F;
      const Matrix before = s, weight(1, width, width, 2), d_value(1, keys, keys, 3), d_before = d_weight;
      kernels().relu_gradient(s.data(), keys, width, weight.values(), d_value.values(), d_weight.data());
      for (int64_t lane = 0; lane < width; ++lane) {
        double want = d_before.at(0, lane), magnitude = std::fabs(want);
        for (int64_t key = 0; key < keys; ++key) {
          const double term = d_value.at(0, key) * Relu(before.at(key, lane));
          want += term;
          magnitude += std::fabs(term);
          const float passed = before.at(key, lane) > 0 ? weight.at(0, lane) * d_value.at(0, key) : 0;
          ASSERT_EQ(s.at(key, lane), passed);
        }
        ASSERT_NEAR(d_weight.at(0, lane), want, kEps * static_cast<double>(keys + 1) * magnitude);
      }
      ASSERT_TRUE(s.Intact());
      ASSERT_TRUE(d_weight.Intact());
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
