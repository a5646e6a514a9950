#include "support/compressed_number.h"

#include <cmath>
#include <limits>

namespace fa::test {
namespace {

/// Returns the number of an 8-bit float that has `fraction_bits` bits of fraction.
double ByteFloat(uint8_t code, int fraction_bits) {
  const int exponent_bits = 7 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (code & 0x7f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
  const double sign = code >= 128 ? -1 : 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (fraction_bits == 3 && (code & 0x7f) == 0x7f) return nan;
  if (fraction_bits == 2 && exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : nan;
  }
  const double one = 1 << fraction_bits;
  if (exponent == 0) return sign * std::ldexp(fraction / one, 1 - bias);
  return sign * std::ldexp(1 + fraction / one, exponent - bias);
}

}  // namespace

double CompressedNumber(DType format, uint8_t code) {
  switch (format) {
    case DType::kF8E4M3: return ByteFloat(code, 3);
    case DType::kF8E5M2: return ByteFloat(code, 2);
    case DType::kI4x8: return (code & 15) >= 8 ? (code & 15) - 16 : code & 15;
    default: return static_cast<int8_t>(code);
  }
}

uint8_t NearestCode(DType format, float number) {
  if (std::isnan(number)) return format == DType::kI8 ? 0 : std::signbit(number) ? 0xFF : 0x7F;
  uint8_t best = 0;
  double error = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 256; ++code) {
    const double value = CompressedNumber(format, static_cast<uint8_t>(code));
    if (std::isnan(value) || (format == DType::kF8E4M3 && std::signbit(value) != std::signbit(number))) continue;
    // An infinity counts as a number beyond all codes, because its distance to each of them would be the same.
    const double now = std::isinf(number) ? std::abs(std::copysign(1e9, number) - value) : std::abs(number - value);
    if (now < error || (now == error && code % 2 == 0)) {
      best = static_cast<uint8_t>(code);
      error = now;
    }
  }
  return best;
}

void StoreCode(DType format, std::byte* row, int64_t column, uint8_t code) {
  if (format != DType::kI4x8) {
    row[column] = std::byte{code};
    return;
  }
  std::byte& both = row[column / 2];
  const int shift = column % 2 * 4;
  both = (both & std::byte(0xf0 >> shift)) | std::byte((code & 15) << shift);
}

}  // namespace fa::test
