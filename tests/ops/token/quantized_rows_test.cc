// Compares rows that WidenRow dequantises with numbers computed in double, for every order of a row's parts.
#include "ops/token/quantized_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "fa/context.h"
#include "fa/half.h"
#include "support/compressed_number.h"

namespace fa::ops {
namespace {

using core::kernels::RowKernels;
using test::CompressedNumber;

/// Returns the kernels of every level that this CPU has.
std::vector<const RowKernels*> EveryLevel() {
  std::vector<const RowKernels*> levels;
  for (const Isa isa : AllIsas()) {
    const RowKernels* rows = core::kernels::Kernels(isa, DType::kBF16).rows;
    if (rows != nullptr && rows->dequantize != nullptr) levels.push_back(rows);
  }
  EXPECT_FALSE(levels.empty());
  return levels;
}

/// Returns the elements of a widened row.
std::vector<double> Widened(const RowKernels& kernels, const QuantizedRow& row, const std::byte* from, int64_t count,
                            DType type) {
  std::vector<float> scratch(static_cast<size_t>(row.ScratchFloats()));
  std::vector<std::byte> to(static_cast<size_t>(count) * SizeOf(type));
  WidenRow(kernels, row, from, count, scratch.data(), type, to.data());
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    if (type == DType::kF32) {
      numbers.push_back(static_cast<double>(reinterpret_cast<const float*>(to.data())[i]));
    } else {
      numbers.push_back(static_cast<double>(F32FromBf16(reinterpret_cast<const uint16_t*>(to.data())[i])));
    }
  }
  return numbers;
}

/// The row of DeepSeek-V4's caches: bf16 rope columns, e4m3 numbers, and a scale 2^(e - 127) per 64 numbers.
QuantizedRow RopeFirst() {
  return {.dtype = DType::kF8E4M3,
          .columns = 448,
          .tile = 64,
          .scale = RowScale::kE8M0,
          .rope_type = DType::kBF16,
          .rope = 64,
          .numbers_at = 128,
          .rope_at = 0,
          .scales_at = 576};
}

TEST(QuantizedRow, CountsItsBytes) {
  EXPECT_EQ(RopeFirst().Bytes(), 583);
  EXPECT_EQ(RopeFirst().Width(), 512);
  EXPECT_EQ(RopeFirst().Tiles(), 7);
  const QuantizedRow bare{.dtype = DType::kI8, .columns = 128};
  EXPECT_EQ(bare.Bytes(), 128);
  EXPECT_EQ(bare.Tiles(), 0);
}

// Every code of a scale: 0 stands for 2^-127, and 255 for NaN. The row begins at an odd address.
TEST(QuantizedRow, EveryPowerOfTwo) {
  const QuantizedRow row = RopeFirst();
  std::vector<std::byte> memory(static_cast<size_t>(row.Bytes()) + 1);
  std::byte* at = memory.data() + 1;
  for (int64_t c = 0; c < 448; ++c) at[128 + c] = std::byte{static_cast<uint8_t>(c % 0x70)};
  for (int64_t c = 0; c < 64; ++c) {
    const uint16_t bits = Bf16FromF32(static_cast<float>(c) - 7);
    std::memcpy(at + 2 * c, &bits, sizeof bits);
  }
  for (int code = 0; code < 256; ++code) {
    for (int64_t tile = 0; tile < 7; ++tile) at[576 + tile] = static_cast<std::byte>((code + tile) % 256);
    for (const RowKernels* kernels : EveryLevel()) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const std::vector<double> got = Widened(*kernels, row, at, 512, type);
        for (int64_t c = 0; c < 448; ++c) {
          const int e = (code + static_cast<int>(c / 64)) % 256;
          const double number = CompressedNumber(DType::kF8E4M3, static_cast<uint8_t>(c % 0x70));
          const double want = std::ldexp(number, e - 127);
          // A product beyond the largest float becomes infinity. Other products are exact in f32. In bf16 a subnormal
          // product becomes 0, or is rounded to a multiple of 2^-133.
          const bool flushed =
              type == DType::kBF16 && want < 0x1p-126 && (got[c] == 0 || std::fabs(got[c] - want) <= 0x1p-134);
          const bool close = got[c] == want || (want > 3.4e38 && std::isinf(got[c])) || flushed;
          ASSERT_TRUE(e == 255 ? std::isnan(got[c]) : close) << "e " << e << " column " << c << ": " << got[c];
        }
        for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(got[448 + c], static_cast<double>(c) - 7);
      }
    }
  }
}

TEST(QuantizedRow, TheFirstColumnsAlone) {
  const QuantizedRow row{.dtype = DType::kI8,
                         .columns = 5,
                         .tile = 2,
                         .scale = RowScale::kF32,
                         .rope_type = DType::kF32,
                         .rope = 2,
                         .numbers_at = 0,
                         .rope_at = 5,
                         .scales_at = 13};
  std::vector<std::byte> memory(static_cast<size_t>(row.Bytes()));
  EXPECT_EQ(row.Bytes(), 25);
  const int8_t numbers[] = {1, -2, 127, -128, 5};
  const float rope[] = {0.5F, -7}, scales[] = {2, -0.5F, 0.25F};
  std::memcpy(memory.data(), numbers, sizeof numbers);
  std::memcpy(memory.data() + 5, rope, sizeof rope);
  std::memcpy(memory.data() + 13, scales, sizeof scales);
  const std::vector<double> all = {2, -4, -63.5, 64, 1.25, 0.5, -7};
  for (const RowKernels* kernels : EveryLevel()) {
    for (int64_t count = 1; count <= 7; ++count) {
      EXPECT_EQ(Widened(*kernels, row, memory.data(), count, DType::kF32),
                std::vector<double>(all.begin(), all.begin() + count));
    }
  }
}

}  // namespace
}  // namespace fa::ops
