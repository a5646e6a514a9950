#include "ops/token/quantized_rows.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

#include "core/integer.h"

namespace fa::ops {
namespace {

using core::kernels::RowFunctions;

constexpr float kUnitScale = 1.0F;
// Tiles of whole vectors of every level are widened in one call.
constexpr int64_t kMostLanes = 16;

int64_t ScaleBytes(RowScale scale) {
  switch (scale) {
    case RowScale::kNone: return 0;
    case RowScale::kF32: return 4;
    case RowScale::kE8M0: return 1;
  }
  return 0;
}

/// Returns 2^(e - 127) for a byte e, or NaN for 255. Byte 0 is a case of its own, because 2^-127 is subnormal.
float FromE8M0(std::byte code) {
  const auto e = static_cast<uint32_t>(code);
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e == 0 ? uint32_t{1} << 22 : e << 23);
}

void ReadScales(const QuantizedRow& row, const std::byte* from, int64_t count, float* scales) {
  from += row.scales_at;
  if (row.scale == RowScale::kF32) {
    std::memcpy(scales, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) scales[i] = FromE8M0(from[i]);
}

/// Rounds numbers to bf16 as a strip of pairs rounds probabilities, in fewer instructions than `narrow`.
/// @return how many of the numbers were rounded
int64_t RoundAsPairs(const core::kernels::StripKernels& pairs, const float* numbers, int64_t count, std::byte* to) {
  const int64_t rows = count / pairs.width;
  pairs.pairs.pair_lanes(numbers, rows, reinterpret_cast<float*>(to));
  return rows * pairs.width;
}

/// Writes the first `count` numbers, times their scales.
void WidenNumbers(const RowFunctions& kernels, const QuantizedRow& row, const std::byte* from, int64_t count,
                  float* scales, float* to) {
  const std::byte* numbers = from + row.numbers_at;
  if (row.scale == RowScale::kNone) {
    return kernels.dequantize({numbers, row.dtype, count}, 1, count, {.scale = &kUnitScale}, to, count);
  }
  ReadScales(row, from, core::CeilDiv(count, row.tile), scales);
  if (row.tile % kMostLanes == 0) {
    return kernels.dequantize({numbers, row.dtype, count}, 1, count, {.scale = scales, .group = row.tile}, to, count);
  }
  for (int64_t column = 0; column < count; column += row.tile, ++scales) {
    const int64_t n = std::min(row.tile, count - column);
    kernels.dequantize({numbers + column, row.dtype, n}, 1, n, {.scale = scales}, to + column, n);
  }
}

}  // namespace

int64_t QuantizedRow::Tiles() const { return scale == RowScale::kNone ? 0 : core::CeilDiv(columns, tile); }

int64_t QuantizedRow::Bytes() const {
  const int64_t rope_bytes = rope * static_cast<int64_t>(SizeOf(rope_type));
  return std::max({numbers_at + columns, rope > 0 ? rope_at + rope_bytes : 0,
                   Tiles() > 0 ? scales_at + Tiles() * ScaleBytes(scale) : 0});
}

void WidenRow(const RowFunctions& kernels, const QuantizedRow& row, const std::byte* from, int64_t count,
              float* scratch, DType type, std::byte* to, const core::kernels::StripKernels* pairs) {
  assert(count <= row.Width());
  const int64_t numbers = std::min(count, row.columns), rope = count - numbers;
  assert(type == DType::kF32 || type == row.rope_type || rope == 0);
  float *scales = scratch + 2 * row.Width(), *staged = scratch + row.Width();
  float* floats = type == DType::kF32 ? reinterpret_cast<float*>(to) : scratch;
  WidenNumbers(kernels, row, from, numbers, scales, floats);
  if (type != DType::kF32) {
    const int64_t done = pairs != nullptr ? RoundAsPairs(*pairs, floats, numbers, to) : 0;
    const int64_t left = numbers - done;
    kernels.narrow(floats + done, left, 1, left, 1, {to + static_cast<size_t>(done) * SizeOf(type), type, left});
  }
  if (rope == 0) return;
  const size_t rope_bytes = static_cast<size_t>(rope) * SizeOf(row.rope_type);
  if (type == row.rope_type) {
    std::memcpy(to + static_cast<size_t>(numbers) * SizeOf(type), from + row.rope_at, rope_bytes);
    return;
  }
  // The rope part may lie at an odd address, and kernels read 16-bit numbers only at even addresses.
  std::memcpy(staged, from + row.rope_at, rope_bytes);
  kernels.widen({staged, row.rope_type, rope}, 1, rope, floats + numbers, rope);
}

}  // namespace fa::ops
