#include "fa/merge_by_lse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/view.h"
#include "ops/dense/merge_by_lse_case.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A merge of two parts, each with two rows of one column. A test may change its arguments.
struct SmallMerge {
  std::vector<float> lse = {0, 1, 2, -1}, parts = {1, 2, 3, 4}, out = {-7, -7}, lse_out = out;
  std::array<TensorView, 2> lses, outs;
  MergeByLseArgs args;
  MergeByLseOptions options;

  SmallMerge() {
    lses = {View(lse.data(), {2}), View(lse.data() + 2, {2})};
    outs = {View(parts.data(), {2, 1}), View(parts.data() + 2, {2, 1})};
    args = {.lse = lses, .local_out = outs, .out = View(out, {2, 1}), .lse_out = View(lse_out, {2})};
  }
  [[nodiscard]] Status Run() const { return MergeByLse(args, options); }
};

TEST(MergeByLse, SkipsPartsWithoutKeys) {
  SmallMerge c;
  c.lse = {kInf, 1, 2, -kInf};
  c.parts = {kNan, 2, 3, kInf};
  ASSERT_TRUE(c.Run().ok()) << c.Run().message();
  EXPECT_EQ(c.out, (std::vector<float>{3, 2})) << "the other part, to the bit";
  EXPECT_EQ(c.lse_out, (std::vector<float>{2, 1}));
}

TEST(MergeByLse, WithoutKeysIsZeroAndTheLseIsAnOption) {
  for (const float empty : {-kInf, kInf}) {
    SmallMerge c;
    c.lse = {kInf, 1, -kInf, 1};
    c.parts = {kNan, 2, kNan, 4};
    c.options.lse_without_keys = empty;
    ASSERT_TRUE(c.Run().ok());
    EXPECT_EQ(c.out, (std::vector<float>{0, 3}));
    EXPECT_EQ(c.lse_out[0], empty);
  }
}

TEST(MergeByLse, NanInAnLseMakesItsRowNan) {
  SmallMerge c;
  c.lse = {kNan, 1, 2, -1};
  ASSERT_TRUE(c.Run().ok());
  EXPECT_TRUE(std::isnan(c.out[0]) && std::isnan(c.lse_out[0]));
  EXPECT_FALSE(std::isnan(c.out[1]) || std::isnan(c.lse_out[1]));
}

TEST(MergeByLse, NamesTheTensorThatDoesNotFit) {
  const auto refused = [](auto spoil, const std::string& text) {
    SmallMerge c;
    spoil(c);
    EXPECT_THAT(c.Run().message(), HasSubstr(text));
    EXPECT_EQ(c.out, (std::vector<float>{-7, -7}));
    EXPECT_EQ(c.lse_out, (std::vector<float>{-7, -7}));
  };
  refused([](auto& c) { c.args.local_out = {}, c.args.lse = {}; }, "local_out has 0 tensors");
  refused([](auto& c) { c.args.lse = c.args.lse.first(1); }, "lse has 1 tensors, want 2 (local_out)");
  refused([](auto& c) { c.outs[1].dtype = DType::kF16; }, "local_out[1].dtype=f16, want f32 (local_out[0].dtype)");
  refused([](auto& c) { c.outs[0].dtype = DType::kI32; }, "local_out[0].dtype=i32, want f32, f16 or bf16");
  refused([](auto& c) { c.outs[1].shape = {2, 2}; }, "local_out[1].shape[1]=2, want 1 (local_out[0].shape[1])");
  refused([](auto& c) { c.lses[1].shape = {1}; }, "lse[1].shape[0]=1, want 2 (local_out[0].shape[0])");
  refused([](auto& c) { c.lses[0].dtype = DType::kBF16; }, "lse[0].dtype=bf16, want f32");
  refused([](auto& c) { c.lses[1] = {}; }, "lse[1]: missing");
  refused([](auto& c) { c.args.out.shape = {1, 2}; }, "out.shape[0]=1, want 2");
  refused([](auto& c) { c.args.out.data = c.parts.data() + 2; }, "out: shares memory with local_out[1]");
  refused([](auto& c) { c.args.lse_out.data = c.lse.data() + 1; }, "lse_out: shares memory with lse[0]");
  refused([](auto& c) { c.options.lse_without_keys = 3; }, "lse_without_keys=3, want -inf or inf");
}

TEST(MergeByLse, AnyStridesGiveTheReference) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    MergeByLseCase c{.dtype = dtype, .parts = 4, .rows = 70, .columns = 530};
    for (const bool transposed : {false, true}) {
      c.transposed = transposed;
      c.inner = transposed ? 2 : 0;
      const MergeByLseProblem problem(c);
      ASSERT_TRUE(MergeByLse(problem.args(), problem.options()).ok());
      EXPECT_TRUE(problem.MatchesReference()) << c;
    }
  }
}

TEST(MergeByLse, BitsDoNotDependOnTheNumberOfThreads) {
  const MergeByLseCase c{.dtype = DType::kBF16, .parts = 5, .rows = 900, .columns = 64};
  const MergeByLseProblem one(c);
  ASSERT_TRUE(MergeByLse(one.args(), one.options(), ContextOf(Isa::kPortable, 1)).ok());
  for (const int threads : {2, 3, 7}) {
    const MergeByLseProblem many(c);
    ASSERT_TRUE(MergeByLse(many.args(), many.options(), ContextOf(Isa::kPortable, threads)).ok());
    EXPECT_EQ(std::memcmp(many.args().out.data, one.args().out.data, 900 * 64 * 2), 0);
    EXPECT_EQ(std::memcmp(many.args().lse_out.data, one.args().lse_out.data, 900 * 4), 0);
  }
}

// If attention is computed over parts of the keys, and a part has no keys for some rows, the merge equals the attention
// over all keys. 200 units of f32 cover the rounding of a softmax over 60 keys.
TEST(MergeByLse, OfACutKeySetIsTheUncutAttention) {
  constexpr int64_t kRows = 40, kKeys = 60, kSize = 16;
  std::vector<float> q(kRows * kSize), k(kKeys * kSize), v(k.size());
  for (int64_t x = 0; x < std::ssize(k); ++x) {
    if (x < std::ssize(q)) q[x] = static_cast<float>(RandomNormal(1, Tag::kQ, {x}));
    k[x] = static_cast<float>(RandomNormal(1, Tag::kK, {x}));
    v[x] = static_cast<float>(RandomNormal(1, Tag::kV, {x}));
  }
  const auto attend = [&](int64_t begin, int64_t end, std::vector<float>& out, std::vector<float>& lse) {
    // Query i keeps the keys up to i. The keys of a part begin at `begin`, so the part's mask is a shifted band.
    AttentionArgs args;
    args.q = View(q, {1, 1, kRows, kSize});
    args.k = View(k.data() + begin * kSize, {1, 1, end - begin, kSize});
    args.v = View(v.data() + begin * kSize, {1, 1, end - begin, kSize});
    std::vector<uint8_t> drop(kRows * (end - begin));
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = begin; j < end; ++j) drop[i * (end - begin) + j - begin] = j > i;
    }
    args.dense_mask = View(drop, {kRows, end - begin});
    args.out = View(out, {1, 1, kRows, kSize});
    args.lse = View(lse, {1, 1, kRows});
    return FlashAttention(args, {});
  };
  std::vector<float> whole(kRows * kSize), whole_lse(kRows);
  ASSERT_TRUE(attend(0, kKeys, whole, whole_lse).ok());
  std::vector<std::vector<float>> outs(3, whole), lses(3, whole_lse);
  std::vector<TensorView> out_views, lse_views;
  constexpr int64_t kCuts[] = {0, 7, 30, kKeys};
  for (size_t part = 0; part < 3; ++part) {
    ASSERT_TRUE(attend(kCuts[part], kCuts[part + 1], outs[part], lses[part]).ok());
    out_views.push_back(View(outs[part], {kRows, kSize}));
    lse_views.push_back(View(lses[part], {kRows}));
  }
  EXPECT_EQ(lses[2][0], -kInf) << "query 0 has no key in the last part";
  std::vector<float> out(whole.size()), lse(kRows);
  ASSERT_TRUE(
      MergeByLse(
          {.lse = lse_views, .local_out = out_views, .out = View(out, {kRows, kSize}), .lse_out = View(lse, {kRows})},
          {})
          .ok());
  for (size_t x = 0; x < out.size(); ++x) ASSERT_NEAR(out[x], whole[x], 200 * 0x1p-24 * 4) << x;
  for (size_t x = 0; x < lse.size(); ++x) ASSERT_NEAR(lse[x], whole_lse[x], 200 * 0x1p-24) << x;
}

}  // namespace
}  // namespace fa::test
