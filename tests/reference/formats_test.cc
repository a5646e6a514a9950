#include <gtest/gtest.h>

#include <cmath>

#include "reference/half.h"
#include "reference/philox.h"

namespace reference {
namespace {

class Formats : public ::testing::TestWithParam<Format> {};

TEST_P(Formats, EveryPatternSurvivesARoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double value = Decode16(GetParam(), static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(RoundTo(GetParam(), value))) << bits;
    } else {
      ASSERT_EQ(Encode16(GetParam(), value), bits);
    }
  }
}

TEST_P(Formats, MidpointsGoToEvenAndTheirNeighboursToTheNearer) {
  const int infinity = GetParam() == Format::kF16 ? 0x7c00 : 0x7f80;
  for (int bits = 0; bits + 1 < infinity; ++bits) {
    const double low = Decode16(GetParam(), static_cast<uint16_t>(bits));
    const double high = Decode16(GetParam(), static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    ASSERT_EQ(Encode16(GetParam(), middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Encode16(GetParam(), std::nextafter(middle, low)), bits);
    ASSERT_EQ(Encode16(GetParam(), std::nextafter(middle, high)), bits + 1);
    ASSERT_EQ(Encode16(GetParam(), -middle), 0x8000 | (bits % 2 == 0 ? bits : bits + 1));
  }
}

TEST_P(Formats, TooLargeBecomesInfinity) {
  EXPECT_EQ(RoundTo(GetParam(), 1e300), INFINITY);
  EXPECT_EQ(RoundTo(GetParam(), -INFINITY), -INFINITY);
}

INSTANTIATE_TEST_SUITE_P(Of16Bits, Formats, ::testing::Values(Format::kF16, Format::kBF16),
                         [](const auto& info) { return info.param == Format::kF16 ? "f16" : "bf16"; });

TEST(Formats, KnownValues) {
  EXPECT_EQ(Encode16(Format::kF16, 1), 0x3c00);
  EXPECT_EQ(Encode16(Format::kF16, 65504), 0x7bff);
  EXPECT_EQ(Encode16(Format::kF16, 65520), 0x7c00);
  EXPECT_EQ(Encode16(Format::kBF16, 1), 0x3f80);
  EXPECT_EQ(UnitRoundoff(Format::kF16), std::ldexp(1, -11));
  EXPECT_EQ(UnitRoundoff(Format::kBF16), std::ldexp(1, -8));
  EXPECT_EQ(UnitRoundoff(Format::kF32), std::ldexp(1, -24));
}

// The known answers come from kat_vectors of Random123, which Philox's authors distribute.
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeepsTheShareAskedFor) {
  int kept = 0;
  for (uint64_t flat = 0; flat < 100000; ++flat) kept += PhiloxKeeps(7, 3, 0.25, flat) ? 1 : 0;
  // The tolerance is six standard deviations of the number of kept pairs.
  EXPECT_NEAR(kept, 25000, 6 * std::sqrt(100000 * 0.25 * 0.75));
}

}  // namespace
}  // namespace reference
