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

using core::kernels::KernelTable;
using test::CompressedNumber;

/// Returns the kernels of every level that this CPU has.
std::vector<const KernelTable*> EveryLevel() {
  std::vector<const KernelTable*> levels;
  for (const Isa isa : AllIsas()) {
    const KernelTable& table = core::kernels::Kernels(isa, DType::kBF16);
    if (table.rows != nullptr && table.rows->dequantize != nullptr) levels.push_back(&table);
  }
  EXPECT_FALSE(levels.empty());
  return levels;
}

/// The ways to write a widened row.
enum class Way { kFloats, kNarrowed, kPairs };

bool Has(const KernelTable& table, Way way) {
  return way != Way::kPairs || table.narrowest().pairs.pair_lanes != nullptr;
}

/// Returns the elements of a widened row.
std::vector<double> Widened(const KernelTable& table, const QuantizedRow& row, const std::byte* from, int64_t count,
                            Way way) {
  const DType type = way == Way::kFloats ? DType::kF32 : DType::kBF16;
  std::vector<float> scratch(static_cast<size_t>(row.ScratchFloats()));
  std::vector<std::byte> to(static_cast<size_t>(count) * SizeOf(type));
  WidenRow(*table.rows, row, from, count, scratch.data(), type, to.data(),
           way == Way::kPairs ? &table.narrowest() : nullptr);
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
    for (const KernelTable* table : EveryLevel()) {
      for (const Way way : {Way::kFloats, Way::kNarrowed, Way::kPairs}) {
        if (!Has(*table, way)) continue;
        const std::vector<double> got = Widened(*table, row, at, 512, way);
        for (int64_t c = 0; c < 448; ++c) {
          const int e = (code + static_cast<int>(c / 64)) % 256;
          const double number = CompressedNumber(DType::kF8E4M3, static_cast<uint8_t>(c % 0x70));
          const double want = std::ldexp(number, e - 127);
          // A product beyond the largest float becomes infinity. Other products are exact in f32. In bf16 a subnormal
          // product becomes 0, or is rounded to a multiple of 2^-133.
          const bool flushed =
              way != Way::kFloats && want < 0x1p-126 && (got[c] == 0 || std::fabs(got[c] - want) <= 0x1p-134);
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
  for (const KernelTable* table : EveryLevel()) {
    for (int64_t count = 1; count <= 7; ++count) {
      EXPECT_EQ(Widened(*table, row, memory.data(), count, Way::kFloats),
                std::vector<double>(all.begin(), all.begin() + count));
    }
  }
}

// Rounding as pairs takes whole vectors of a strip, and leaves some columns to `narrow`.
TEST(QuantizedRow, AnyNumberOfColumnsIsRoundedAlike) {
  for (const int64_t tile : {24, 64}) {
    QuantizedRow row{.dtype = DType::kI8, .columns = 448, .tile = tile, .scale = RowScale::kF32};
    row.scales_at = row.columns;
    std::vector<std::byte> memory(static_cast<size_t>(row.Bytes()));
    for (int64_t c = 0; c < row.columns; ++c) memory[static_cast<size_t>(c)] = static_cast<std::byte>(c * 37 + 11);
    for (int64_t i = 0; i < row.Tiles(); ++i) {
      const float scale = 0.013F * static_cast<float>(i + 1);
      std::memcpy(&memory[static_cast<size_t>(row.scales_at + 4 * i)], &scale, sizeof scale);
    }
    for (const KernelTable* table : EveryLevel()) {
      for (int64_t count = 1; count <= row.columns; count += 21) {
        const std::vector<double> floats = Widened(*table, row, memory.data(), count, Way::kFloats);
        std::vector<double> want;
        for (const double x : floats) {
          want.push_back(static_cast<double>(F32FromBf16(Bf16FromF32(static_cast<float>(x)))));
        }
        for (int64_t c = 0; c < count; ++c) {
          const float number = static_cast<float>(static_cast<int8_t>(memory[static_cast<size_t>(c)]));
          ASSERT_EQ(floats[static_cast<size_t>(c)], number * (0.013F * static_cast<float>(c / tile + 1))) << c;
        }
        for (const Way way : {Way::kNarrowed, Way::kPairs}) {
          if (!Has(*table, way)) continue;
          EXPECT_EQ(Widened(*table, row, memory.data(), count, way), want) << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa::ops
