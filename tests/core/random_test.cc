#include "core/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace fa::core {
namespace {

using Words = std::array<uint32_t, 4>;

// The vectors come from the file kat_vectors of Random123.
TEST(Philox4x32, GivesThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxWord, PutsIndexOffsetAndSeedWhereTheHeaderSays) {
  const PhiloxState state{.seed = 0x299f31d0a4093822, .offset = 0x0370734413198a2e};
  const uint64_t block = 0x05a308d3243f6a88;  // below 2^62, because 4 * block must fit into 64 bits
  const Words words = Philox4x32({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (uint64_t w = 0; w < 4; ++w) EXPECT_EQ(PhiloxWord(state, 4 * block + w), words[w]);
}

TEST(KeepThreshold, IsTheProbabilityTimesTwoToThe32RoundedDown) {
  EXPECT_EQ(KeepThreshold(1.0f), uint64_t{1} << 32);
  EXPECT_EQ(KeepThreshold(0.5f), uint64_t{1} << 31);
  EXPECT_EQ(KeepThreshold(0.9f), 3865470464u);  // 0.9f is 15099494 * 2^-24
  EXPECT_EQ(KeepThreshold(std::numeric_limits<float>::min()), 0u);
  EXPECT_EQ(KeepThreshold(std::nextafter(1.0f, 0.0f)), (uint64_t{1} << 32) - 256);
}

std::vector<Isa> Levels() {
  std::vector<Isa> levels;
  for (const Isa isa : AllIsas()) {
    if (Includes(DetectIsa(), isa)) levels.push_back(isa);
  }
  return levels;
}

std::vector<uint32_t> BitByBit(const PhiloxState& state, uint64_t threshold, uint64_t first, int64_t bits) {
  std::vector<uint32_t> words(static_cast<size_t>((bits + 31) / 32), 0);
  for (int64_t i = 0; i < bits; ++i) {
    if (PhiloxWord(state, first + static_cast<uint64_t>(i)) < threshold) {
      words[static_cast<size_t>(i / 32)] |= 1u << i % 32;
    }
  }
  return words;
}

class FillKeepBitsTest : public testing::TestWithParam<Isa> {};

TEST_P(FillKeepBitsTest, AgreesWithTheDefinitionBitByBit) {
  std::mt19937_64 random(1);
  for (float keep_prob : {1.0f, 0.9f, 0.5f, 0.01f, std::numeric_limits<float>::min()}) {
    for (uint64_t first = 0; first < 9; ++first) {
      for (int64_t bits : {0, 1, 3, 31, 32, 33, 63, 64, 65, 200, 5000}) {
        const PhiloxState state{.seed = random(), .offset = random()};
        // Words past the end must stay untouched.
        std::vector<uint32_t> words(static_cast<size_t>((bits + 31) / 32) + 1, 0xdeadbeef);
        const uint64_t threshold = KeepThreshold(keep_prob);
        FillKeepBits(state, threshold, first, bits, words, GetParam());
        std::vector<uint32_t> expected = BitByBit(state, threshold, first, bits);
        expected.push_back(0xdeadbeef);
        EXPECT_EQ(words, expected) << "keep_prob " << keep_prob << " first " << first << " bits " << bits;
      }
    }
  }
}

TEST_P(FillKeepBitsTest, CarriesTheIndexPast32Bits) {
  const PhiloxState state{.seed = 7, .offset = 9};
  // The block numbers run from 2^32 - 5 to 2^32 + 10, so their low word overflows.
  const uint64_t first = ((uint64_t{1} << 32) - 5) * 4 + 3;
  std::vector<uint32_t> words(2);
  FillKeepBits(state, KeepThreshold(0.7f), first, 60, words, GetParam());
  EXPECT_EQ(words, BitByBit(state, KeepThreshold(0.7f), first, 60));
}

TEST_P(FillKeepBitsTest, DrawsWordsOfAnyBlocks) {
  const PhiloxState state{.seed = 11, .offset = 12};
  std::mt19937_64 random(2);
  for (const float keep_prob : {1.0f, 0.6f}) {
    const uint64_t threshold = KeepThreshold(keep_prob);
    for (size_t count = 0; count <= 9; ++count) {
      std::vector<uint64_t> blocks;
      for (size_t i = 0; i < count; ++i) blocks.push_back(random() >> (i % 2 == 0 ? 40 : 8));
      // Here the low word of the block number overflows within one word of bits.
      if (count > 2) blocks[2] = (uint64_t{1} << 32) - 3;
      std::vector<uint32_t> words(count + 1, 0xdeadbeef), expected;
      DrawKeepWords(state, threshold, blocks, words.data(), GetParam());
      for (const uint64_t block : blocks) expected.push_back(BitByBit(state, threshold, 4 * block, 32)[0]);
      expected.push_back(0xdeadbeef);
      EXPECT_EQ(words, expected) << count;
    }
  }
}

TEST_P(FillKeepBitsTest, KeepsTheShareAskedFor) {
  constexpr int64_t kBits = 1 << 20;
  std::vector<uint32_t> words(kBits / 32);
  FillKeepBits({.seed = 3, .offset = 0}, KeepThreshold(0.9f), 0, kBits, words, GetParam());
  int64_t kept = 0;
  for (uint32_t word : words) kept += std::popcount(word);
  // The bound is five standard deviations of the binomial distribution of the count.
  EXPECT_NEAR(static_cast<double>(kept), 0.9 * kBits, 5 * std::sqrt(0.9 * 0.1 * kBits));
}

INSTANTIATE_TEST_SUITE_P(Levels, FillKeepBitsTest, testing::ValuesIn(Levels()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace fa::core
