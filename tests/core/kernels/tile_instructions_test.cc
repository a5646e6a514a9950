// Tests the instructions of the tile unit. Their emulation equals the definitions of Intel's manual bit by bit. On a
// CPU that has the unit, the instructions equal the emulation.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/levels/kernel_level.h"
#include "core/machine/cpu.h"

namespace fa::core::kernels {
namespace {

/// 16 rows of 64 bytes, or of 16 words.
struct Tile {
  alignas(64) std::array<std::array<uint32_t, 16>, 16> row;
  bool operator==(const Tile&) const = default;
};

enum class Dot { kPairs, kSigned, kSignedUnsigned, kUnsignedSigned };

namespace emulated {
#include "core/kernels/vec/vec_amx_emulated.h"
#include "tile_round_trip.inc"
}  // namespace emulated

#if defined(__x86_64__)
namespace instructions {
#include "core/kernels/vec/vec_amx.h"
#include "tile_round_trip.inc"
}  // namespace instructions
#endif

uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
/// Returns x, or a zero with x's sign if x is subnormal.
float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
/// Returns element `i` of a row of bf16.
float ElementOf(const std::array<uint32_t, 16>& row, int i) {
  return Flushed(std::bit_cast<float>(i % 2 == 0 ? row[static_cast<size_t>(i / 2)] << 16
                                                 : row[static_cast<size_t>(i / 2)] & 0xffff0000u));
}

/// Computes TDPBF16PS as Intel's Software Developer's Manual defines it. One chain of FP32 FMAs adds the products of
/// even elements, and another chain adds the products of odd elements. Two additions follow. Subnormal numbers count as
/// zeros (DAZ, FTZ), and rounding is to nearest even.
Tile PairsByTheManual(Tile c, const Tile& a, const Tile& b) {
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 16; ++n) {
      float sum[2] = {0, 0};
      for (size_t k = 0; k < 16; ++k) {
        for (int i = 0; i < 2; ++i) {
          const float x = ElementOf(a.row[m], static_cast<int>(2 * k) + i);
          const float y = ElementOf(b.row[k], static_cast<int>(2 * n) + i);
          sum[i] = Flushed(std::fma(x, y, sum[i]));
        }
      }
      const float both = Flushed(sum[0] + sum[1]);
      c.row[m][n] = BitsOf(Flushed(Flushed(std::bit_cast<float>(c.row[m][n])) + both));
    }
  }
  return c;
}

/// Computes TDPBSSD, TDPBSUD or TDPBUSD as Intel's Software Developer's Manual defines them.
Tile BytesByTheManual(Tile c, const Tile& a, const Tile& b, bool a_signed, bool b_signed) {
  const auto byte = [](const std::array<uint32_t, 16>& row, size_t i, bool is_signed) -> int64_t {
    const auto value = static_cast<uint8_t>(row[i / 4] >> i % 4 * 8);
    return is_signed ? int64_t{static_cast<int8_t>(value)} : int64_t{value};
  };
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 16; ++n) {
      int64_t sum = 0;
      for (size_t k = 0; k < 64; ++k) {
        sum += byte(a.row[m], k, a_signed) * byte(b.row[k / 4], 4 * n + k % 4, b_signed);
      }
      c.row[m][n] += static_cast<uint32_t>(sum);
    }
  }
  return c;
}

Tile ByTheManual(Dot dot, const Tile& c, const Tile& a, const Tile& b) {
  switch (dot) {
    case Dot::kPairs: return PairsByTheManual(c, a, b);
    case Dot::kSigned: return BytesByTheManual(c, a, b, true, true);
    case Dot::kSignedUnsigned: return BytesByTheManual(c, a, b, true, false);
    case Dot::kUnsignedSigned: return BytesByTheManual(c, a, b, false, true);
  }
  return c;
}

/// Expects equal bits, or NaN where NaN is wanted.
void ExpectSameFloats(const Tile& got, const Tile& want) {
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 16; ++n) {
      if (std::isnan(std::bit_cast<float>(want.row[m][n]))) {
        ASSERT_TRUE(std::isnan(std::bit_cast<float>(got.row[m][n]))) << m << " " << n;
      } else {
        ASSERT_EQ(got.row[m][n], want.row[m][n]) << m << " " << n;
      }
    }
  }
}

/// Returns words of random bits.
Tile AnyBits(std::mt19937& random) {
  Tile tile;
  for (auto& row : tile.row) {
    for (uint32_t& word : row) word = random();
  }
  return tile;
}
/// Returns words of two bf16 each, whose exponents differ from 127 by at most `spread`. Their sums cancel and have
/// ties.
Tile Pairs(std::mt19937& random, uint32_t spread) {
  Tile tile = AnyBits(random);
  for (auto& row : tile.row) {
    for (uint32_t& word : row) {
      const uint32_t lower = 127 - spread + random() % (2 * spread + 1),
                     upper = 127 - spread + random() % (2 * spread + 1);
      word = (word & 0x807f807fu) | lower << 7 | upper << 23;
    }
  }
  return tile;
}

class TileInstructions : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !Includes(HighestIsa(ReadCpuFeatureWords()), Isa::kAvx512Amx)) {
      GTEST_SKIP() << "this CPU has no tile unit; only its emulation is tested";
    }
  }
  /// Computes the product in every combination of tile registers that the kernels use, and expects that all give the
  /// same bits.
  static Tile Run(Dot dot, const Tile& c, const Tile& a, const Tile& b) {
#if defined(__x86_64__)
    if (GetParam()) return instructions::RoundTrip(dot, c, a, b);
#endif
    return emulated::RoundTrip(dot, c, a, b);
  }
  std::mt19937 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Emulated, TileInstructions, testing::Values(false));
#if defined(__x86_64__)
INSTANTIATE_TEST_SUITE_P(OfThisCpu, TileInstructions, testing::Values(true));
#endif

TEST_P(TileInstructions, PairsAddAsTheManualSays) {
  for (const uint32_t spread : {0u, 1u, 4u, 12u, 30u, 63u}) {
    for (int round = 0; round < 4; ++round) {
      const Tile a = Pairs(random_, spread), b = Pairs(random_, spread), c = Pairs(random_, spread);
      ExpectSameFloats(Run(Dot::kPairs, c, a, b), PairsByTheManual(c, a, b));
    }
  }
}

TEST_P(TileInstructions, PairsOfAnyBitsAddAsTheManualSays) {  // the bits include subnormal and infinite numbers and NaN
  for (int round = 0; round < 8; ++round) {
    const Tile a = AnyBits(random_), b = AnyBits(random_), c = AnyBits(random_);
    ExpectSameFloats(Run(Dot::kPairs, c, a, b), PairsByTheManual(c, a, b));
  }
}

/// The emulation has variants for some CPUs. The tests above run the variant of this CPU.
TEST(EmulatedTiles, EveryVariantThatThisCpuRunsAddsAsTheManualSays) {
  using emulated::EmulatedTile;
  std::vector<void (*)(EmulatedTile&, const EmulatedTile&, const EmulatedTile&)> variants = {
      [](EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b) {
        emulated::EmulateDotPairsOnVectors(c, a, b);
      }};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) variants.push_back(emulated::EmulateDotPairsAvx2);
  if (__builtin_cpu_supports("avx512vl")) variants.push_back(emulated::EmulateDotPairsAvx512);
#endif
  std::mt19937 random(9);
  for (int round = 0; round < 12; ++round) {
    const auto draw = [&] { return round % 3 == 0 ? AnyBits(random) : Pairs(random, round % 3 == 1 ? 4 : 63); };
    const Tile a = draw(), b = draw(), c = draw(), want = PairsByTheManual(c, a, b);
    for (const auto variant : variants) {
      auto got = std::bit_cast<EmulatedTile>(c);
      variant(got, std::bit_cast<EmulatedTile>(a), std::bit_cast<EmulatedTile>(b));
      ASSERT_NO_FATAL_FAILURE(ExpectSameFloats(std::bit_cast<Tile>(got), want));
    }
  }
}

TEST_P(TileInstructions, PairsAreWithinRoundingOfTheProduct) {
  const Tile a = Pairs(random_, 2), b = Pairs(random_, 2), got = Run(Dot::kPairs, Tile{}, a, b);
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 16; ++n) {
      double want = 0, magnitude = 0;
      for (size_t k = 0; k < 16; ++k) {
        for (int i = 0; i < 2; ++i) {
          const double term = double{ElementOf(a.row[m], static_cast<int>(2 * k) + i)} *
                              double{ElementOf(b.row[k], static_cast<int>(2 * n) + i)};
          want += term;
          magnitude += std::fabs(term);
        }
      }
      // Each of the two chains has 16 additions, and two more additions follow.
      ASSERT_TRUE(std::fabs(std::bit_cast<float>(got.row[m][n]) - want) <= 18 * 0x1p-24 * magnitude) << m << " " << n;
    }
  }
}

TEST_P(TileInstructions, SubnormalNumbersCountAsZero) {
  Tile a{}, b{}, c{};
  a.row[0][0] = 0x00003f80;  // the lower element is 1
  b.row[0][0] = 0x0000007f;  // a subnormal element
  c.row[0][0] = 0x007fffff;  // a subnormal sum
  EXPECT_EQ(Run(Dot::kPairs, c, a, b).row[0][0], 0u);
  a.row[0][0] = b.row[0][0] = 0x00002000;  // 2^-63 each; their product 2^-126 is not subnormal
  EXPECT_EQ(Run(Dot::kPairs, Tile{}, a, b).row[0][0], BitsOf(0x1p-126f));
  a.row[0][0] = 0x00001f80;  // 2^-64; a product with it would be subnormal
  EXPECT_EQ(Run(Dot::kPairs, Tile{}, a, b).row[0][0], 0u);
}

TEST_P(TileInstructions, BytesAddModulo2To32) {
  for (const Dot dot : {Dot::kSigned, Dot::kSignedUnsigned, Dot::kUnsignedSigned}) {
    for (int round = 0; round < 4; ++round) {
      const Tile a = AnyBits(random_), b = AnyBits(random_), c = AnyBits(random_);
      ASSERT_EQ(Run(dot, c, a, b), ByTheManual(dot, c, a, b));
    }
  }
}

TEST_P(TileInstructions, LoadsAndStoresTouchSixteenRowsOf64Bytes) {
  constexpr int64_t kStep = 96;
  std::array<uint8_t, 16 * kStep> from{}, to{};
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(random_());
  to.fill(0xa5);
  {
    const TileScope scope;
#if defined(__x86_64__)
    GetParam() ? instructions::Copy(from.data(), to.data(), kStep) : emulated::Copy(from.data(), to.data(), kStep);
#else
    emulated::Copy(from.data(), to.data(), kStep);
#endif
  }
  for (size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], i % kStep < 64 ? from[i] : 0xa5) << i;
  EXPECT_EQ(tile_use, TileUse::kNone) << "released at the end of a scope";
}

TEST(TileInstructionsDeathTest, TilesHaveToBeConfigured) { EXPECT_DEATH(emulated::TileZero<0>(), ""); }

}  // namespace
}  // namespace fa::core::kernels
