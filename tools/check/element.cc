#include "check/element.h"

#include <bit>
#include <cmath>

namespace fa::check {
namespace {

double FromF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t ToF16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float magnitude = std::fabs(value);
  constexpr uint16_t kInfinity = 0x7c00, kNan = 0x7e00;
  if (std::isnan(value)) return sign | kNan;
  if (magnitude >= 65520.0F) return sign | kInfinity;
  // In these lines, `unit` is the exponent of the result's last bit: -24 for subnormal results, and otherwise exponent
  // - 11.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude lies in [2^(exponent-1), 2^exponent)
  const int unit = magnitude < 0x1p-14F ? -24 : exponent - 11;
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));  // `units` is at most 2048
  // If rounding carries out of the fraction, the carry increases the exponent, which is right.
  const uint32_t bits = unit == -24 ? units : (static_cast<uint32_t>(unit + 24) << 10) + units;
  return static_cast<uint16_t>(sign | bits);
}

uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

double LoadElement(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  if (dtype == DType::kF16) return FromF16(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void StoreElement(void* data, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = dtype == DType::kF16 ? ToF16(value) : ToBF16(value);
  }
}

double UnitRoundoff(DType dtype) {
  if (dtype == DType::kF32) return 0x1p-24;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

}  // namespace fa::check
