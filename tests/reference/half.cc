#include "reference/half.h"

#include <bit>
#include <cmath>
#include <limits>

namespace reference {
namespace {

struct Shape {
  int exponent_bits, fraction_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int smallest_exponent() const { return 1 - bias(); }
  /// Returns how many more fraction bits a double has than a normal number of the 16-bit format.
  [[nodiscard]] int dropped_bits() const { return 52 - fraction_bits; }
  /// Returns the difference between the exponent biases of double and of the 16-bit format.
  [[nodiscard]] int64_t exponent_offset() const { return 1023 - bias(); }
  /// Returns the smallest subnormal number, 2^(smallest_exponent - fraction_bits). per_unit() is its inverse.
  [[nodiscard]] double unit() const { return fraction_bits == 10 ? 0x1p-24 : 0x1p-133; }
  [[nodiscard]] double per_unit() const { return fraction_bits == 10 ? 0x1p24 : 0x1p133; }
};

Shape ShapeOf(Format format) {
  switch (format) {
    case Format::kF16: return {.exponent_bits = 5, .fraction_bits = 10};
    case Format::kBF16: return {.exponent_bits = 8, .fraction_bits = 7};
    case Format::kF32: break;
  }
  return {.exponent_bits = 8, .fraction_bits = 23};
}

}  // namespace

double Decode16(Format format, uint16_t bits) {
  const Shape shape = ShapeOf(format);
  const int fraction = bits & ((1 << shape.fraction_bits) - 1);
  const int exponent = (bits >> shape.fraction_bits) & ((1 << shape.exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << shape.exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * fraction * shape.unit();
  const int64_t normal = (exponent + shape.exponent_offset()) << 52 | static_cast<int64_t>(fraction)
                                                                          << shape.dropped_bits();
  return sign * std::bit_cast<double>(normal);
}

uint16_t Encode16(Format format, double value) {
  const Shape shape = ShapeOf(format);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = ((1 << shape.exponent_bits) - 1) << shape.fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (shape.fraction_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const double magnitude = std::fabs(value);
  const double units = magnitude * shape.per_unit();  // this product is exact, or infinite if it overflows
  // nearbyint rounds ties to even. If it rounds the largest subnormal number up, the result has the bits of the
  // smallest normal number.
  if (units < 1 << shape.fraction_bits) return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(units)));
  // Rounds to nearest even. Adds just under half of the last kept bit, and one unit more if that bit is odd. A carry
  // out of the fraction rightly increases the exponent.
  const auto exact = std::bit_cast<int64_t>(magnitude);
  const int64_t last = exact >> shape.dropped_bits() & 1;
  const int64_t rounded = (exact + (int64_t{1} << (shape.dropped_bits() - 1)) - 1 + last) >> shape.dropped_bits();
  const int64_t bits = rounded - (shape.exponent_offset() << shape.fraction_bits);
  return static_cast<uint16_t>(sign | (bits >= infinity ? infinity : static_cast<int>(bits)));
}

double RoundTo(Format format, double value) {
  if (format == Format::kF32) return static_cast<double>(static_cast<float>(value));
  return Decode16(format, Encode16(format, value));
}

double UnitRoundoff(Format format) { return std::ldexp(1.0, -ShapeOf(format).fraction_bits - 1); }

double SmallestError(Format format) {
  const Shape shape = ShapeOf(format);
  return std::ldexp(1.0, shape.smallest_exponent() - shape.fraction_bits - 1);
}

}  // namespace reference
