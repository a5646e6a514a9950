// Tests ScatterRows into caches of 8 bits: codes, scales, forms, errors, and a decode that reads what was written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/cache_rows.h"
#include "fa/decode_attention.h"
#include "fa/view.h"
#include "ops/cache/cache_case.h"
#include "support/compressed_number.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNanRow = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();
constexpr DType kCodeTypes[] = {DType::kI8, DType::kF8E4M3};

/// Writes numbers as one row with the scale 1, and returns their codes.
std::vector<uint8_t> CodesOf(DType format, const std::vector<float>& numbers) {
  const auto columns = static_cast<int64_t>(numbers.size());
  std::vector<uint8_t> codes(numbers.size());
  const std::vector<int32_t> slots = {0};
  const std::vector<float> one = {1.0F};
  ScatterRowsArgs args;
  args.key = View(numbers, {1, 1, columns});
  args.slot_mapping = View(slots, {1});
  args.key_cache = {codes.data(), format, {1, 1, 1, columns}, {}};
  args.key_scale = View(one, {1});
  const Status status = ScatterRows(args, {});
  EXPECT_TRUE(status.ok()) << status.message();
  return codes;
}

// The numbers are the values of all codes, the middles between neighbouring codes, and the floats next to each middle.
TEST(QuantizeRows, RoundsToTheNearestCodeAndTiesToEven) {
  for (const DType format : kCodeTypes) {
    std::vector<float> codes;
    for (int code = 0; code < 256; ++code) {
      const double number = CompressedNumber(format, static_cast<uint8_t>(code));
      if (!std::isnan(number)) codes.push_back(static_cast<float>(number));
    }
    std::sort(codes.begin(), codes.end());
    std::vector<float> numbers = codes;
    for (size_t i = 1; i < codes.size(); ++i) {
      const float middle = (codes[i - 1] + codes[i]) / 2;  // this mean is exact
      numbers.insert(numbers.end(), {middle, std::nextafter(middle, kInfinite), std::nextafter(middle, -kInfinite)});
    }
    const std::vector<uint8_t> got = CodesOf(format, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(int{got[i]}, int{NearestCode(format, numbers[i])}) << Name(format) << " of " << numbers[i];
    }
  }
}

TEST(QuantizeRows, SaturatesAndReadsWhatIsNotFinite) {
  const std::vector<float> numbers = {127.5F, 1e30F, kInfinite, -128.5F, -1e30F, -kInfinite, kNanRow, 1e-44F};
  EXPECT_THAT(CodesOf(DType::kI8, numbers), ElementsAre(127, 127, 127, 128, 128, 128, 0, 0));
  const std::vector<float> large = {449.0F, 464.0F, 1e30F, kInfinite, -500.0F, -kInfinite, kNanRow, 1e-44F};
  EXPECT_THAT(CodesOf(DType::kF8E4M3, large), ElementsAre(0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE, 0x7F, 0));
}

TEST(QuantizeRows, AScaleOfItsOwnIsTheLargestMagnitudeOverTheLargestCode) {
  // A usual row, zeros, one NaN, one infinity, and numbers so small that their scale is 0.
  const std::vector<float> key = {-2.0F, 1.0F, 0.5F, 0, 0, 0, 1, kNanRow, 2, 1, -kInfinite, 2, 1e-44F, 0, -1e-44F};
  const std::vector<int32_t> slots = {4, 3, 2, 1, 0};
  for (const DType format : kCodeTypes) {
    std::vector<uint8_t> codes(15, 99);
    std::vector<float> scales(5, 7.0F);
    ScatterRowsArgs args;
    args.key = View(key, {5, 1, 3});
    args.slot_mapping = View(slots, {5});
    args.key_cache = {codes.data(), format, {1, 5, 1, 3}, {}};
    args.key_scale_cache = View(scales, {1, 1, 5, 1});
    ASSERT_TRUE(ScatterRows(args, {}).ok());
    const float largest = format == DType::kI8 ? 127.0F : 448.0F;
    EXPECT_EQ(scales[4], 2.0F / largest);
    for (size_t d = 0; d < 3; ++d) EXPECT_EQ(codes[12 + d], NearestCode(format, key[d] / scales[4]));
    EXPECT_EQ(codes[12], format == DType::kI8 ? 129 : 0xFE);  // the codes of -127 and -448
    EXPECT_EQ(scales[3], 0.0F);
    EXPECT_TRUE(std::isnan(scales[2]));
    EXPECT_TRUE(std::isnan(scales[1]));
    EXPECT_EQ(scales[0], 0.0F);
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(codes[i], 0) << i;
  }
}

TEST(QuantizeRows, EveryFormTypeAndScaleOnAnyNumberOfThreads) {
  int64_t seed = 0;
  for (const CacheForm form : {CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ}) {
    for (const Codes codes : {Codes::kOwnScale, Codes::kGivenScale, Codes::kGivenScalePerHead}) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        ScatterCase c;
        c.seed = static_cast<uint64_t>(++seed);
        c.form = form;
        c.rows = 150;
        c.heads = 3;
        c.key_size = 64;
        c.value_size = 272;  // more than one piece of a head
        c.chunk = 16;
        c.pages = 10;
        c.page_rows = 17;
        c.any_strides = seed % 2 == 0;
        c.key_type = c.value_type = type;
        c.key_codes = codes;
        c.value_codes = seed % 3 == 0 ? Codes::kNone : codes;
        const ScatterProblem problem(c);
        for (const int threads : {1, 2, 7}) {
          const Snapshot before = problem.TakeSnapshot();
          before.Forget();
          problem.RestoreInputs();
          const Status status = ScatterRows(problem.args(), problem.options(), ContextOf(Isa::kPortable, threads));
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_TRUE(problem.MatchesReference()) << threads << " threads of " << c;
          EXPECT_EQ(before.FirstChange(), -1) << c;
        }
      }
    }
  }
}

/// A scatter of 2 rows into one page of 3 rows, with 2 heads of 4 columns and a scale per place. A test may change it.
struct SmallQuantize {
  std::vector<float> key = std::vector<float>(16, 1.0F), scales = std::vector<float>(6, -1.0F), given = {1.0F, 2.0F};
  std::vector<int8_t> cache = std::vector<int8_t>(24, 77);
  std::vector<int32_t> slots = {2, 0};
  ScatterRowsArgs args;

  SmallQuantize() {
    args.key = View(key, {2, 2, 4});
    args.slot_mapping = View(slots, {2});
    args.key_cache = View(cache, {1, 3, 2, 4});
    args.key_scale_cache = View(scales, {1, 2, 3, 1});
  }
};

TEST(QuantizeRows, NamesTheTensorThatDoesNotFit) {
  const auto refused = [](auto spoil, const std::string& text) {
    SmallQuantize c;
    spoil(c);
    EXPECT_THAT(ScatterRows(c.args, {}).message(), HasSubstr(text));
    EXPECT_EQ(c.cache, std::vector<int8_t>(24, 77));
    EXPECT_EQ(c.scales, std::vector<float>(6, -1.0F));
  };
  const auto give = [](auto& c) {
    c.args.key_scale_cache = {};
    c.args.key_scale = View(c.given, {2});
  };
  refused([](auto& c) { c.args.key_scale_cache = {}; },
          "key_cache.dtype=i8, want f32 (key.dtype), or scales of its codes");
  refused([](auto& c) { c.args.key_scale = View(c.given, {2}); },
          "key_scale: given, want none (key_scale_cache is given)");
  refused(
      [](auto& c) {
        c.args.key_scale_cache.shape = {1, 3, 2, 1};
      },
      "key_scale_cache.shape=[1,3,2,1], want [1,2,3,1] (pages, heads, page size, 1)");
  refused([](auto& c) { c.args.key_scale_cache.dtype = DType::kBF16; }, "key_scale_cache.dtype=bf16, want f32");
  refused([](auto& c) { c.args.key_scale_cache.stride = {6, 0, 1, 1}; }, "key_scale_cache.stride=[6,0,1,1]");
  refused([](auto& c) { c.args.key_cache.dtype = DType::kF8E5M2; }, "key_cache.dtype=f8e5m2, want f32 (key.dtype)");
  refused([](auto& c) { c.args.key.dtype = DType::kI32; }, "key_cache.dtype=i8, want i32 (key.dtype)");
  refused([](auto& c) { c.args.value_scale = View(c.given, {2}); },
          "value_scale: given, want none (value_cache: missing)");
  refused([](auto& c) { c.args.key.dtype = DType::kI8; }, "key_scale_cache: given, want none (key_cache.dtype is i8)");
  refused([](auto& c) { c.args.key_cache.data = c.scales.data(); }, "key_scale_cache: shares memory with key_cache");
  refused([](auto& c) { c.args.key_scale_cache.data = c.key.data(); }, "key_scale_cache: shares memory with key");
  refused([](auto& c) { c.slots[1] = 3; }, "slot_mapping[1]=3, want less than 3 (key_cache)");
  refused([&](auto& c) { give(c), c.args.key_scale.shape = {3}; }, "key_scale.shape=[3], want [1] or [2] (heads)");
  for (const float bad : {0.0F, -1.0F, kInfinite, kNanRow}) {
    refused([&](auto& c) { give(c), c.given[1] = bad; }, "key_scale[1]=");
  }
}

TEST(QuantizeRows, IsPartOfThePlan) {
  SmallQuantize c;
  const auto plan = PlanScatterRows(c.args, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->info().kernels, ElementsAre("quantize_rows"));
  ScatterRowsArgs other = c.args;
  other.key_scale_cache = {};
  EXPECT_THAT(plan->Run(other).message(), HasSubstr("key_scale_cache"));
}

/// A decode from pages that ScatterRows has written must agree with a decode from unpaged f32 copies of the dequantised
/// keys and values.
TEST(QuantizeRows, DecodeReadsThePagesAndTheirScales) {
  constexpr int64_t kHeads = 2, kSize = 32, kRows = 37, kPageRows = 8, kPages = 6;
  std::vector<float> key(kRows * kHeads * kSize), value = key, q(4 * kSize);
  for (size_t i = 0; i < key.size(); ++i) {
    key[i] = std::sin(static_cast<float>(i) * 0.37F) * (1.0F + static_cast<float>(i % 7));
    value[i] = std::cos(static_cast<float>(i) * 0.21F);
  }
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  const std::vector<int32_t> pages = {4, 1, 5, 0, 2};
  std::vector<int32_t> slots;
  for (int32_t t = 0; t < kRows; ++t) slots.push_back(pages[t / kPageRows] * kPageRows + t % kPageRows);
  for (const DType format : kCodeTypes) {
    // Unwritten codes are 0x7F, and unwritten scales are NaN. decode must not read them.
    std::vector<uint8_t> codes[2] = {std::vector<uint8_t>(kPages * kPageRows * kHeads * kSize, 0x7F), {}};
    codes[1] = codes[0];
    std::vector<float> scales[2] = {std::vector<float>(kPages * kHeads * kPageRows, kNanRow), {}};
    scales[1] = scales[0];
    const Dims shape = {kPages, kHeads, kPageRows, kSize}, scale_shape = {kPages, kHeads, kPageRows, 1};
    ScatterRowsArgs write;
    write.key = View(key, {kRows, kHeads, kSize});
    write.value = View(value, {kRows, kHeads, kSize});
    write.slot_mapping = View(slots, {kRows});
    write.key_cache = {codes[0].data(), format, shape, {}};
    write.value_cache = {codes[1].data(), format, shape, {}};
    write.key_scale_cache = View(scales[0], scale_shape);
    write.value_scale_cache = View(scales[1], scale_shape);
    ASSERT_TRUE(ScatterRows(write, {.form = CacheForm::kBnNBsD}).ok());

    std::vector<float> dequantised[2];
    for (int side = 0; side < 2; ++side) {
      dequantised[side].resize(kHeads * kRows * kSize);
      for (int64_t i = 0; i < kHeads * kRows * kSize; ++i) {
        const int64_t n = i / (kRows * kSize), t = i / kSize % kRows;
        const int64_t place = (slots[t] / kPageRows * kHeads + n) * kPageRows + slots[t] % kPageRows;
        const double code = CompressedNumber(format, codes[side][place * kSize + i % kSize]);
        dequantised[side][i] = static_cast<float>(code * static_cast<double>(scales[side][place]));
      }
    }
    const auto decode = [&](const TensorView& k, const TensorView& v, bool paged) {
      std::vector<float> out(q.size());
      const int64_t lengths[] = {kRows};
      DecodeAttentionArgs args;
      args.q = View(q, {1, 4, 1, kSize});
      args.k = {&k, 1};
      args.v = {&v, 1};
      args.lengths_kv = lengths;
      args.out = View(out, {1, 4, 1, kSize});
      if (paged) {
        args.block_table = View(pages, {1, 5});
        args.k_scale = write.key_scale_cache;
        args.v_scale = write.value_scale_cache;
      }
      const Status status = DecodeAttention(args, {}, ContextOf(Isa::kPortable, 2));
      EXPECT_TRUE(status.ok()) << status.message();
      return out;
    };
    const std::vector<float> got = decode(write.key_cache, write.value_cache, true);
    const std::vector<float> want =
        decode(View(dequantised[0], {1, kHeads, kRows, kSize}), View(dequantised[1], {1, kHeads, kRows, kSize}), false);
    // Both results are computed in f32 from the same numbers. Per column of a head, scores may differ by a few units of
    // 2^-24.
    const double bound = 64 * 0x1p-24 * static_cast<double>(kSize);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], bound) << Name(format) << " " << i;
  }
}

}  // namespace
}  // namespace fa::test
