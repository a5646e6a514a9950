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
