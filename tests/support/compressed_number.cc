#include "support/compressed_number.h"

#include <algorithm>
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
  if (format == DType::kI8) {
    const double bounded = std::isnan(number) ? 0 : std::clamp<double>(number, -128, 127);
    const double below = std::floor(bounded), rest = bounded - below;
    const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
    return static_cast<uint8_t>(static_cast<int8_t>(below + (up ? 1 : 0)));
  }
  const uint8_t sign = std::signbit(number) ? 0x80 : 0;
  if (std::isnan(number)) return sign | 0x7f;
  // Magnitudes grow with the code up to 448, whose code is 0x7e.
  const double magnitude = std::abs(static_cast<double>(number));
  uint8_t above = 0;
  for (uint8_t step = 64; step > 0; step /= 2) {  // finds the smallest code that is not below the magnitude
    if (above + step - 1 < 0x7e && CompressedNumber(format, above + step - 1) < magnitude) above += step;
  }
  if (above == 0) return sign;
  const double to_above = CompressedNumber(format, above) - magnitude;
  const double to_below = magnitude - CompressedNumber(format, above - 1);
  const bool down = to_below < to_above || (to_below == to_above && above % 2 != 0);
  return sign | (down ? above - 1 : above);
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
