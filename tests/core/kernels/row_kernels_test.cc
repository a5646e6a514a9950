// Tests the row kernels of every level that this CPU has: exp2 over its whole range, dequantizing, widening, and
// finding bits that are set.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/kernels/kernel_fixture.h"
#include "support/compressed_number.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {
namespace {

/// Returns one registry line per level, because all lines of a level have the same row kernels.
std::vector<Level> FirstStrips() {
  std::vector<Level> levels = Levels();
  levels.erase(std::remove_if(levels.begin(), levels.end(), [](const Level& level) { return level.strip != 0; }),
               levels.end());
  return levels;
}

class RowKernelsTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Registry, RowKernelsTest, testing::ValuesIn(FirstStrips()), LevelName);

TEST_P(RowKernelsTest, Exp2IsWithinTwoUlpOverTheWholeRange) {
  std::vector<float> x, y;
  // The arguments are every 4096th float of [-160, 127] and the special values.
  for (uint32_t bits = 0; bits < 0x43200000u; bits += 4096) {
    float value;
    std::memcpy(&value, &bits, 4);
    x.push_back(-value);
    if (value <= 127) x.push_back(value);
  }
  for (const float special : {-kInf, -1e30f, -3e38f, -150.0f, -149.0f, -126.5f, -126.0f, 0.5f, -0.5f})
    x.push_back(special);
  y.resize(x.size());
  row_kernels().exp2(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    // A normal result is off by at most two ulp. One ulp of a subnormal result is 2^-149.
    const double ulp = std::max(std::ldexp(1.0, std::ilogb(std::max(want, 1e-60)) - 23), std::ldexp(1.0, -149));
    ASSERT_NEAR(y[i], want, 2 * ulp) << "x = " << x[i];
    if (x[i] < -150) {
      ASSERT_EQ(y[i], 0.0f) << "x = " << x[i];
    }
    if (x[i] == std::floor(x[i]) && x[i] >= -149) {
      ASSERT_EQ(y[i], want) << "a power of two is exact";
    }
  }
  const float nan = kNan;
  float result = 0;
  row_kernels().exp2(&nan, 1, &result);
  EXPECT_TRUE(std::isnan(result));
}

TEST_P(RowKernelsTest, DequantizesEveryCodeWithEveryLayoutOfScales) {
  constexpr int64_t kRows = 5;
  const auto check = [&](DType dtype, int64_t n, bool by_row, int64_t group, bool has_offset) {
    const int64_t bits = dtype == DType::kI4x8 ? 4 : 8, element = static_cast<int64_t>(SizeOf(dtype));
    const int64_t stride = CeilDiv((n + 5) * bits / 8, element), row_bytes = stride * element, to_stride = n + 2;
    // The byte after the last column is unreadable.
    const test::GuardedBuffer memory(static_cast<size_t>((kRows - 1) * row_bytes + CeilDiv(n * bits, 8)),
                                     test::Place::kAtEnd);
    // With 65 columns, the rows together have every code of 8 bits.
    const auto code = [&](int64_t r, int64_t c) { return static_cast<uint8_t>((r * n + c) * 37 + 128); };
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < n; ++c) test::StoreCode(dtype, memory.data() + r * row_bytes, c, code(r, c));
    }
    const int64_t of_row = group == 0 ? 1 : CeilDiv(n, group), row_step = by_row ? of_row : 0;
    std::vector<float> scale(static_cast<size_t>(by_row ? kRows * of_row : of_row)), offset(scale.size());
    for (size_t i = 0; i < scale.size(); ++i) {
      scale[i] = 0.01f * static_cast<float>(i + 1);
      offset[i] = 3.5f - static_cast<float>(i);
    }
    std::vector<float> got(static_cast<size_t>(kRows * to_stride), kInf);
    row_kernels().dequantize(
        {memory.data(), dtype, stride}, kRows, n,
        {.scale = scale.data(), .offset = has_offset ? offset.data() : nullptr, .row_step = row_step, .group = group},
        got.data(), to_stride);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < to_stride; ++c) {
        float want = kInf;
        if (c < n) {
          const auto by = static_cast<size_t>(r * row_step + (group == 0 ? 0 : c / group));
          const auto x = static_cast<float>(test::CompressedNumber(dtype, code(r, c)));
          want = (x + (has_offset ? offset[by] : 0.0f)) * scale[by];
        }
        const float is = got[static_cast<size_t>(r * to_stride + c)];
        ASSERT_TRUE(EqualBits(is, want)) << "row " << r << " column " << c << ": " << is << " against " << want;
      }
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8}},
              Axis{"n", {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65}}, Axis{"by_row", {false, true}},
              Axis{"group", {0, 1, 4}}, Axis{"offset", {false, true}});
}

TEST_P(RowKernelsTest, WidenAndTest) {
  const auto check = [&](int64_t n, float bad) {
    std::vector<float> x(static_cast<size_t>(n), 1.0f);
    EXPECT_TRUE(row_kernels().all_finite(x.data(), DType::kF32, n));
    for (const size_t at : {size_t{0}, x.size() / 2, x.size() - 1}) {
      std::vector<float> y = x;
      y[at] = bad;
      EXPECT_FALSE(row_kernels().all_finite(y.data(), DType::kF32, n)) << at;
    }
  };
  ForEachCase(check, Axis{"n", {1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 65}}, Axis{"bad", {kInf, -kInf, kNan}});
  // Widening is exact, so the result of every 16-bit pattern is known exactly.
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(patterns.size());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    row_kernels().widen({patterns.data(), dtype, 257}, 255, 257, wide.data(), 257);
    for (size_t i = 0; i < 255 * 257; ++i) {
      float want;
      if (dtype == DType::kF16) {
        Half half;
        std::memcpy(&half, &patterns[i], 2);
        want = half;
      } else {
        const uint32_t bits = static_cast<uint32_t>(patterns[i]) << 16;
        std::memcpy(&want, &bits, 4);
      }
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[i]));
      } else {
        ASSERT_EQ(wide[i], want) << i;
      }
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
