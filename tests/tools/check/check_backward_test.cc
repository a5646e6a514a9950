#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "check/gradients.h"

namespace fa::check {
namespace {

/// One query head with random contents. Row i keeps the keys j <= i + 2.
class OneHead {
 public:
  OneHead() {
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    for (std::vector<float>* tensor : {&q, &k, &v, &d_out}) {
      for (float& value : *tensor) value = normal(random);
    }
  }

  [[nodiscard]] ForwardRow Forward(int64_t row) const {
    return ComputeForwardRow({.q = Rows(q, kD),
                              .k = Rows(k, kD),
                              .v = Rows(v, kDv),
                              .row = row,
                              .sk = kSk,
                              .scale = kScale,
                              .keeps = [row](int64_t key) { return key <= row + 2; }});
  }

  [[nodiscard]] BackwardHead Backward() const {
    return {.q = Rows(q, kD),
            .k = Rows(k, kD),
            .v = Rows(v, kDv),
            .d_out = Rows(d_out, kDv),
            .sq = kSq,
            .sk = kSk,
            .scale = kScale,
            .keeps = [](int64_t row, int64_t key) { return key <= row + 2; },
            .facts = [this](int64_t row) { return FactsFromForward(Forward(row), Rows(d_out, kDv), row); }};
  }

  /// Returns sum(out * d_out).
  [[nodiscard]] double Loss() const {
    double loss = 0;
    for (int64_t row = 0; row < kSq; ++row) {
      const ForwardRow forward = Forward(row);
      for (size_t d = 0; d < kDv; ++d) loss += forward.out[d] * d_out[static_cast<size_t>(row) * kDv + d];
    }
    return loss;
  }

  /// Returns the derivative of Loss() by tensor[at], from central differences.
  [[nodiscard]] double Slope(std::vector<float>& tensor, size_t at) const {
    const float before = tensor[at];
    // The sums may be rounded to f32. So the derivative divides by the distance of the rounded sums.
    tensor[at] = before + 0x1p-9F;
    const double above = Loss(), high = tensor[at];
    tensor[at] = before - 0x1p-9F;
    const double below = Loss(), low = tensor[at];
    tensor[at] = before;
    return (above - below) / (high - low);
  }

  static constexpr int64_t kSq = 5, kSk = 7, kD = 6, kDv = 4;
  static constexpr double kScale = 0.5;
  std::vector<float> q = std::vector<float>(kSq * kD), k = std::vector<float>(kSk * kD);
  std::vector<float> v = std::vector<float>(kSk * kDv), d_out = std::vector<float>(kSq * kDv);

 private:
  static HeadRows Rows(const std::vector<float>& tensor, int64_t columns) {
    return {.data = tensor.data(), .dtype = DType::kF32, .offset = 0, .row_stride = columns, .columns = columns};
  }
};

// A central difference is off by h^2/6 times the third derivative. With h = 2^-9 and derivatives near 10 this is 6e-6.
constexpr double kDifferenceError = 1e-5;

TEST(CheckGradients, QueryGradientIsTheSlopeOfTheLoss) {
  OneHead head;
  for (int64_t row = 0; row < OneHead::kSq; ++row) {
    const GradientRow dq = ComputeQueryGradient(head.Backward(), row);
    ASSERT_EQ(dq.value.size(), static_cast<size_t>(OneHead::kD));
    for (size_t d = 0; d < dq.value.size(); ++d) {
      EXPECT_NEAR(dq.value[d], head.Slope(head.q, static_cast<size_t>(row) * OneHead::kD + d), kDifferenceError);
    }
  }
}

TEST(CheckGradients, KeyGradientsAreTheSlopesOfTheLoss) {
  OneHead head;
  for (int64_t key = 0; key < OneHead::kSk; ++key) {
    const BackwardHead backward = head.Backward();
    const KeyGradients gradients = ComputeKeyGradients(std::span(&backward, 1), key);
    const auto row = static_cast<size_t>(key);
    for (size_t d = 0; d < OneHead::kD; ++d) {
      EXPECT_NEAR(gradients.dk.value[d], head.Slope(head.k, row * OneHead::kD + d), kDifferenceError);
    }
    for (size_t d = 0; d < OneHead::kDv; ++d) {
      EXPECT_NEAR(gradients.dv.value[d], head.Slope(head.v, row * OneHead::kDv + d), kDifferenceError);
    }
  }
}

TEST(CheckGradients, KeyGradientsAreSummedOverTheGroup) {
  const OneHead head;
  const BackwardHead one = head.Backward();
  const std::vector<BackwardHead> two = {one, one};
  const KeyGradients single = ComputeKeyGradients(std::span(&one, 1), 2), twice = ComputeKeyGradients(two, 2);
  // Two sums of ten terms near 1, added in different orders, differ by at most 10 x 10 roundings of 2^-53.
  constexpr double kReordered = 100 * 0x1p-53;
  for (size_t d = 0; d < OneHead::kD; ++d) EXPECT_NEAR(twice.dk.value[d], 2 * single.dk.value[d], kReordered);
  for (size_t d = 0; d < OneHead::kDv; ++d) EXPECT_NEAR(twice.dv.value[d], 2 * single.dv.value[d], kReordered);
}

TEST(CheckGradients, MaskedPairsAreNotLookedAt) {
  OneHead head;
  const GradientRow before = ComputeQueryGradient(head.Backward(), 0);
  head.k[size_t{3} * OneHead::kD] = NAN;  // row 0 keeps the keys 0 to 2
  head.v[size_t{3} * OneHead::kDv] = NAN;
  const GradientRow after = ComputeQueryGradient(head.Backward(), 0);
  EXPECT_EQ(after.value, before.value);
  EXPECT_EQ(after.bound, before.bound);
}

TEST(CheckGradients, BoundsAreAFewRoundingsWide) {
  // Sums of at most 7 terms near 1 have some hundred roundings of 2^-24. A wrong term would change them far more.
  const OneHead head;
  const GradientRow dq = ComputeQueryGradient(head.Backward(), 4);
  for (const double bound : dq.bound) {
    EXPECT_GT(bound, 0x1p-24);
    EXPECT_LT(bound, 1e-3);
  }
}

TEST(CheckGradients, GivenStatisticsCarryNoErrorOfTheForward) {
  const OneHead head;
  const ForwardRow forward = head.Forward(3);
  std::vector<float> out(forward.out.begin(), forward.out.end());
  const HeadRows out_rows = {.data = out.data(), .row_stride = OneHead::kDv, .columns = OneHead::kDv};
  HeadRows d_out = head.Backward().d_out;
  d_out.offset = 3 * OneHead::kDv;
  const RowFacts given = FactsFromInputs(out_rows, d_out, 0, 1.5, std::exp(2.0));
  EXPECT_EQ(given.max, 1.5);
  EXPECT_DOUBLE_EQ(given.log_sum, 2.0);
  EXPECT_EQ(given.lse_error, 0);
  const RowFacts computed = FactsFromForward(forward, d_out, 0);
  EXPECT_NEAR(given.delta, computed.delta, 1e-6);  // the given out was rounded to f32
  EXPECT_GT(computed.lse_error, 0);
  EXPECT_GT(computed.delta_error, given.delta_error);
}

}  // namespace
}  // namespace fa::check
