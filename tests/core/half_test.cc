#include "fa/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fa {
namespace {

bool IsNanF16(uint16_t bits) { return (bits & 0x7C00u) == 0x7C00u && (bits & 0x3FFu) != 0; }
bool IsNanBf16(uint16_t bits) { return (bits & 0x7F80u) == 0x7F80u && (bits & 0x7Fu) != 0; }

// Returns the value of f16 bits by the definition of the format.
double DefinedF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? std::numeric_limits<double>::infinity()
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16HasItsDefinedValueAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = F32FromF16(bits);
    if (IsNanF16(bits)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(IsNanF16(F16FromF32(value))) << i;
    } else {
      EXPECT_EQ(value, DefinedF16(bits)) << i;
      EXPECT_EQ(F16FromF32(value), bits) << i;
    }
  }
}

TEST(Half, EveryBf16ComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = F32FromBf16(bits);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), i << 16);
    if (IsNanBf16(bits)) {
      EXPECT_TRUE(IsNanBf16(Bf16FromF32(value))) << i;
    } else {
      EXPECT_EQ(Bf16FromF32(value), bits) << i;
    }
  }
}

// Checks rounding between the neighbours `low` and `low` + 1. Values below the middle round down, and values above it
// round up. The middle rounds to the even neighbour.
template <typename Widen, typename Narrow>
void ExpectNearestEven(uint16_t low, Widen widen, Narrow narrow) {
  const auto high = static_cast<uint16_t>(low + 1);
  const float a = widen(low);
  const auto middle = static_cast<float>((static_cast<double>(a) + widen(high)) / 2);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(narrow(std::nextafter(middle, -inf)), low) << low;
  EXPECT_EQ(narrow(middle), low % 2 == 0 ? low : high) << low;
  EXPECT_EQ(narrow(std::nextafter(middle, inf)), high) << low;
}

TEST(Half, RoundsToNearestEvenBetweenAllNeighbours) {
  for (uint32_t low = 0; low < 0x7BFF; ++low) {
    ExpectNearestEven(static_cast<uint16_t>(low), F32FromF16, F16FromF32);
  }
  for (uint32_t low = 0; low < 0x7F7F; ++low) {
    ExpectNearestEven(static_cast<uint16_t>(low), F32FromBf16, Bf16FromF32);
  }
}

TEST(Half, OverflowGivesInfinityWithTheSign) {
  EXPECT_EQ(F16FromF32(65504.0f), 0x7BFF);
  EXPECT_EQ(F16FromF32(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(F16FromF32(65520.0f), 0x7C00);
  EXPECT_EQ(F16FromF32(-1e30f), 0xFC00);
  EXPECT_EQ(Bf16FromF32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(Bf16FromF32(-std::numeric_limits<float>::infinity()), 0xFF80);
}

TEST(Half, KeepsEveryNanANan) {
  for (const uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u, 0x7FC00000u, 0x7F801000u}) {
    EXPECT_TRUE(IsNanF16(F16FromF32(std::bit_cast<float>(bits)))) << std::hex << bits;
    EXPECT_TRUE(IsNanBf16(Bf16FromF32(std::bit_cast<float>(bits)))) << std::hex << bits;
  }
}

}  // namespace
}  // namespace fa
