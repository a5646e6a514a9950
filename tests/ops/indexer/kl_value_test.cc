// Compares IndexerKLLoss with its definition, written as in the vendor's documentation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/half.h"
#include "fa/indexer_kl_loss.h"
#include "fa/view.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kRowsOfLoss = 37, kEntriesOfLoss = 300;

/// Two random distributions per row. Some entries are 0, and the rows of the target have any sum.
struct Distributions {
  explicit Distributions(int64_t rows = kRowsOfLoss, int64_t entries = kEntriesOfLoss) {
    for (int64_t i = 0; i < rows * entries; ++i) {
      const auto value = [&](Tag tag) {
        const double x = RandomUniform(9, tag, {i});
        return x < 0.1 ? 0.0F : static_cast<float>(x / static_cast<double>(entries));
      };
      target.push_back(value(Tag::kQ)), probabilities.push_back(value(Tag::kK));
    }
  }
  std::vector<float> target, probabilities;
};

double ExpectedLoss(const Distributions& x, int64_t entries, double eps, bool of_target) {
  double loss = 0;
  for (size_t first = 0; first < x.target.size(); first += static_cast<size_t>(entries)) {
    double sum = 0;
    for (size_t i = first; i < first + static_cast<size_t>(entries); ++i) sum += x.target[i];
    for (size_t i = first; i < first + static_cast<size_t>(entries); ++i) {
      const double y = x.target[i], p = y / (sum + eps);
      loss += (of_target ? y : p) * (std::log(std::max(p, eps)) - std::log(x.probabilities[i] + eps));
    }
  }
  return loss;
}

IndexerKLLossOptions LossOptions(double eps, bool of_target) {
  return {.eps = eps, .weight = of_target ? IndexerKLLossWeight::kTarget : IndexerKLLossWeight::kNormalised};
}

float LossOf(const TensorView& target, const TensorView& probabilities, const IndexerKLLossOptions& options,
             Context* context = nullptr) {
  float loss = std::numeric_limits<float>::quiet_NaN();
  const Status status =
      IndexerKLLoss({.target = target, .probabilities = probabilities, .loss = View(&loss, {1})}, options, context);
  EXPECT_TRUE(status.ok()) << status.message();
  return loss;
}

TEST(IndexerKLLossValue, IsItsDefinitionForAnyThreads) {
  const Distributions x;
  const Dims shape{kRowsOfLoss, kEntriesOfLoss};
  for (const double eps : {1e-8, 1e-3}) {
    for (const bool of_target : {true, false}) {
      const double want = ExpectedLoss(x, kEntriesOfLoss, eps, of_target);
      const IndexerKLLossOptions options = LossOptions(eps, of_target);
      const float one = LossOf(View(x.target, shape), View(x.probabilities, shape), options, ContextOf(DetectIsa(), 1));
      // All terms are computed in double. Their errors are far smaller than the single rounding of the result to f32.
      EXPECT_NEAR(one, want, std::fabs(want) * std::numeric_limits<float>::epsilon());
      EXPECT_GT(std::fabs(want), 1e-2);
      for (const int threads : {2, 7, 0}) {
        EXPECT_EQ(LossOf(View(x.target, shape), View(x.probabilities, shape), options, ContextOf(DetectIsa(), threads)),
                  one);
      }
    }
  }
}

TEST(IndexerKLLossValue, TypesAndStridesGiveTheBitsOfTheSameNumbers) {
  constexpr int64_t kRows = 6, kEntries = 20;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Distributions x(kRows, kEntries);
    std::vector<uint16_t> bits(x.target.size()), turned(x.target.size());
    for (int64_t i = 0; i < kRows * kEntries; ++i) {
      const auto at = static_cast<size_t>(i);
      bits[at] = dtype == DType::kF16 ? F16FromF32(x.target[at]) : Bf16FromF32(x.target[at]);
      x.target[at] = dtype == DType::kF16 ? F32FromF16(bits[at]) : F32FromBf16(bits[at]);
      turned[static_cast<size_t>(i % kEntries * kRows + i / kEntries)] = bits[at];
    }
    const TensorView y = View(x.probabilities, {2, 3, kEntries});
    const float want = LossOf(View(x.target, {2, 3, kEntries}), y, LossOptions(1e-6, true));
    EXPECT_EQ(LossOf(View(bits.data(), dtype, {2, 3, kEntries}), y, LossOptions(1e-6, true)), want);
    EXPECT_EQ(LossOf(View(turned.data(), dtype, {2, 3, kEntries}, {3, 1, kRows}), y, LossOptions(1e-6, true)), want);
    EXPECT_TRUE(std::isfinite(want));
  }
}

TEST(IndexerKLLossValue, SpecialValues) {
  std::vector<float> y = {0, 0}, p = {0, 0};
  EXPECT_EQ(LossOf(View(y, {1, 2}), View(p, {1, 2}), LossOptions(1e-8, true)), 0);
  EXPECT_EQ(LossOf(View(y, {0, 2}), View(p, {0, 2}), LossOptions(1e-8, true)), 0);
  EXPECT_TRUE(std::isnan(LossOf(View(y, {1, 2}), View(p, {1, 2}), LossOptions(0, true))));
  y = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(LossOf(View(y, {2}), View(p, {2}), LossOptions(1e-8, true))));
  EXPECT_TRUE(std::isnan(LossOf(View(p, {2}), View(y, {2}), LossOptions(1e-8, true))));
  // One entry with all weight: P = 1 / (1 + eps), and the loss is ln(P) - ln(1/2 + eps).
  y = {1, 0}, p = {0.5F, 0.5F};
  EXPECT_FLOAT_EQ(LossOf(View(y, {2}), View(p, {2}), LossOptions(0.25, true)),
                  static_cast<float>(std::log(0.8 / 0.75)));
}

TEST(IndexerKLLossValue, ErrorsNameTheArgument) {
  std::vector<float> y(6), p(6), loss(2, 7);
  const auto refused = [&](const std::string& text, const auto& change) {
    IndexerKLLossArgs args{.target = View(y, {2, 3}), .probabilities = View(p, {2, 3}), .loss = View(loss.data(), {1})};
    IndexerKLLossOptions options;
    change(args, options);
    EXPECT_EQ(IndexerKLLoss(args, options).message(), "invalid argument: " + text);
  };
  using Args = IndexerKLLossArgs;
  using Options = IndexerKLLossOptions;
  refused("target: missing", [](Args& a, Options&) { a.target = {}; });
  refused("probabilities.shape[1]=2, want 3 (target.shape[1])", [&](Args& a, Options&) {
    a.probabilities = View(p, {2, 2});
  });
  refused("probabilities.shape=[6], want [2,3] (target.shape)",
          [&](Args& a, Options&) { a.probabilities = View(p, {6}); });
  refused("target.dtype=i32, want f32, f16 or bf16", [](Args& a, Options&) { a.target.dtype = DType::kI32; });
  refused("loss.shape=[2], want one element", [&](Args& a, Options&) { a.loss = View(loss, {2}); });
  refused("eps=-1, want a finite number of at least 0", [](Args&, Options& o) { o.eps = -1; });
  refused("eps=nan, want a finite number of at least 0",
          [](Args&, Options& o) { o.eps = std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_FALSE(
      IndexerKLLoss({.target = View(y, {2, 3}), .probabilities = View(p, {2, 3}), .loss = View(y.data(), {1})}, {})
          .ok());
  EXPECT_EQ(loss, std::vector<float>({7, 7}));
}

}  // namespace
}  // namespace fa::test
