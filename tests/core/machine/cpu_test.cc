#include "core/machine/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/amx_emulated.h"

namespace fa::core {
namespace {

// The feature words of a CPU with all features, on an operating system that saves all registers.
constexpr CpuFeatureWords kEverything{.leaf1_ecx = ~0u,
                                      .leaf7_ebx = ~0u,
                                      .leaf7_ecx = ~0u,
                                      .leaf7_edx = ~0u,
                                      .leaf7_1_eax = ~0u,
                                      .xcr0 = ~uint64_t{0},
                                      .tiles_permitted = true};

CpuFeatureWords Without(uint32_t CpuFeatureWords::*word, int bit) {
  CpuFeatureWords words = kEverything;
  words.*word &= ~(1u << bit);
  return words;
}

CpuFeatureWords WithStates(uint64_t xcr0) {
  CpuFeatureWords words = kEverything;
  words.xcr0 = xcr0;
  return words;
}

TEST(HighestIsa, IsTheTopLevelWithEverythingAndPortableWithNothing) {
  EXPECT_EQ(HighestIsa(kEverything), Isa::kAvx512Amx);
  EXPECT_EQ(HighestIsa({}), Isa::kPortable);
}

TEST(HighestIsa, Avx2NeedsAvx2FmaAndF16c) {
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf7_ebx, 5)), Isa::kPortable);
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf1_ecx, 12)), Isa::kPortable);
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf1_ecx, 29)), Isa::kPortable);
}

TEST(HighestIsa, Avx512NeedsFBwDqAndVl) {
  for (int bit : {16, 17, 30, 31}) EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf7_ebx, bit)), Isa::kAvx2) << bit;
}

TEST(HighestIsa, EachLevelIncludesTheOnesBeforeIt) {
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf7_ecx, 11)), Isa::kAvx512);  // BF16 counts only together with VNNI
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf7_1_eax, 5)), Isa::kAvx512Vnni);
}

TEST(HighestIsa, CountsOnlyRegistersThatTheOperatingSystemSaves) {
  // No OSXSAVE: the operating system does not use XSAVE.
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf1_ecx, 27)), Isa::kPortable);
  EXPECT_EQ(HighestIsa(WithStates(0x03)), Isa::kPortable);       // the system saves only x87 and SSE registers
  EXPECT_EQ(HighestIsa(WithStates(0x07)), Isa::kAvx2);           // the system also saves AVX registers
  EXPECT_EQ(HighestIsa(WithStates(0x67)), Isa::kAvx2);           // the system does not save zmm16 to zmm31
  EXPECT_EQ(HighestIsa(WithStates(0xe7)), Isa::kAvx512Bf16);     // the system does not save tiles
  EXPECT_EQ(HighestIsa(WithStates(0x200e7)), Isa::kAvx512Bf16);  // the system does not save the data of tiles
  EXPECT_EQ(HighestIsa(WithStates(0x600e7)), Isa::kAvx512Amx);
}

TEST(HighestIsa, TilesNeedBothProductsAndThePermission) {
  for (const int bit : {22, 24, 25}) {  // the bits of bf16, tiles and int8
    const CpuFeatureWords words = Without(&CpuFeatureWords::leaf7_edx, bit);
    EXPECT_EQ(HighestIsa(words), Isa::kAvx512Bf16) << bit;
    EXPECT_STREQ(TileUnitOf(words), "none") << bit;
  }
  CpuFeatureWords refused = kEverything;
  refused.tiles_permitted = false;
  EXPECT_EQ(HighestIsa(refused), Isa::kAvx512Bf16);
  EXPECT_STREQ(TileUnitOf(refused), "not permitted by the operating system");
  EXPECT_STREQ(TileUnitOf(kEverything), "bf16, int8");
  EXPECT_EQ(HighestIsa(Without(&CpuFeatureWords::leaf7_1_eax, 5)),
            Isa::kAvx512Vnni);  // tiles count only together with BF16
}

TEST(PreferredIsa, LeavesOutPairsOfBf16OnIntelOnly) {
  EXPECT_EQ(PreferredIsa(Isa::kAvx512Bf16, true), Isa::kAvx512Vnni);
  EXPECT_EQ(PreferredIsa(Isa::kAvx512Bf16, false), Isa::kAvx512Bf16);
  EXPECT_EQ(PreferredIsa(Isa::kAvx512Amx, true), Isa::kAvx512Amx);
  EXPECT_EQ(PreferredIsa(Isa::kAvx2, true), Isa::kAvx2);
}

TEST(HighestIsa, AgreesWithTheCompilersOwnDetection) {
#if defined(__x86_64__)
  const Isa isa = HighestIsa(ReadCpuFeatureWords());
  EXPECT_EQ(isa >= Isa::kAvx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(isa >= Isa::kAvx512, __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                                     __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(isa >= Isa::kAvx512Vnni, isa >= Isa::kAvx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(isa >= Isa::kAvx512Bf16, isa >= Isa::kAvx512Vnni && __builtin_cpu_supports("avx512bf16"));
#else
  GTEST_SKIP() << "GCC has no such detection for this CPU";
#endif
}

TEST(DetectIsa, IsWhatTheCpuReportsOrMoreWhereMoreIsAssumed) {
  const char* text = std::getenv("FA_ASSUME_ISA");
  const Isa assumed = text == nullptr ? Isa::kPortable : ParseIsa(text).value_or(Isa::kPortable);
  const Isa reported = HighestIsa(ReadCpuFeatureWords());
  EXPECT_EQ(DetectIsa(), Includes(assumed, reported) ? assumed : reported);
}

TEST(HighestIsa, OfAarch64ComesFromTheKernelsWords) {
  constexpr uint64_t kAsimd = 1u << 1, kDotprod = 1u << 20, kI8mm = 1u << 13, kBf16 = 1u << 14;
  EXPECT_EQ(HighestIsa({.hwcap = kAsimd}), Isa::kNeon);
  // I8mm and BF16 count only together with Dotprod.
  EXPECT_EQ(HighestIsa({.hwcap = kAsimd, .hwcap2 = kI8mm | kBf16}), Isa::kNeon);
  EXPECT_EQ(HighestIsa({.hwcap = kAsimd | kDotprod}), Isa::kNeonDotprod);
  EXPECT_EQ(HighestIsa({.hwcap = kAsimd | kDotprod, .hwcap2 = kI8mm | kBf16}), Isa::kNeonBf16);
  EXPECT_EQ(HighestIsa({.hwcap = kAsimd | kDotprod, .hwcap2 = kBf16}), Isa::kNeonDotprod);
}

TEST(Includes, HoldsWithinAFamilyAndForPortable) {
  for (const Isa level : AllIsas()) {
    EXPECT_TRUE(Includes(level, level)) << Name(level);
    EXPECT_TRUE(Includes(level, Isa::kPortable)) << Name(level);
    const bool any_cpu = level == Isa::kPortable || level == kAmxEmulated;
    EXPECT_EQ(Includes(Isa::kPortable, level), any_cpu) << Name(level);
  }
  EXPECT_TRUE(Includes(Isa::kAvx512Bf16, Isa::kAvx2));
  EXPECT_FALSE(Includes(Isa::kAvx2, Isa::kAvx512));
  EXPECT_TRUE(Includes(Isa::kNeonBf16, Isa::kNeon));
  EXPECT_FALSE(Includes(Isa::kNeon, Isa::kNeonDotprod));
  EXPECT_FALSE(Includes(Isa::kNeonBf16, Isa::kAvx2));
  EXPECT_FALSE(Includes(Isa::kAvx512Bf16, Isa::kNeon));
  EXPECT_TRUE(Includes(Isa::kAvx512Amx, Isa::kAvx512Bf16));
  EXPECT_FALSE(Includes(Isa::kAvx512Bf16, Isa::kAvx512Amx));
  EXPECT_FALSE(Includes(kAmxEmulated, Isa::kAvx2));
}

TEST(Isa, NamesAreParsedBack) {
  for (const Isa isa : AllIsas()) {
    EXPECT_EQ(ParseIsa(Name(isa)), isa);
  }
  EXPECT_STREQ(Name(Isa::kAvx512Vnni), "avx512_vnni");
  for (const char* name : {"", "AVX2", "avx", "avx512 ", "avx512bf16"}) EXPECT_EQ(ParseIsa(name), std::nullopt) << name;
}

TEST(CpuName, IsOneTrimmedLine) {
  const std::string name = CpuName();
  ASSERT_FALSE(name.empty());
  EXPECT_EQ(name.find('\n'), std::string::npos);
  EXPECT_NE(name.front(), ' ');
  EXPECT_NE(name.back(), ' ');
}

}  // namespace
}  // namespace fa::core
