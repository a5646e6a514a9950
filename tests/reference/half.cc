#include "reference/half.h"

#include <cmath>
#include <limits>

namespace reference {
namespace {

struct Shape {
  int exponent_bits, fraction_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int smallest_exponent() const { return 1 - bias(); }
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
  if (exponent == 0) return sign * std::ldexp(fraction, shape.smallest_exponent() - shape.fraction_bits);
  return sign * std::ldexp(fraction + (1 << shape.fraction_bits), exponent - shape.bias() - shape.fraction_bits);
}

uint16_t Encode16(Format format, double value) {
  const Shape shape = ShapeOf(format);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = ((1 << shape.exponent_bits) - 1) << shape.fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (shape.fraction_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  if (value == 0) return static_cast<uint16_t>(sign);
  int exponent = std::ilogb(value);
  if (exponent < shape.smallest_exponent()) exponent = shape.smallest_exponent();
  // The unit is the last place; nearbyint rounds ties to even. A carry into the next binade is a carry of the bits.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), shape.fraction_bits - exponent));
  const int64_t bits =
      static_cast<int64_t>(units) + (static_cast<int64_t>(exponent - shape.smallest_exponent()) << shape.fraction_bits);
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
