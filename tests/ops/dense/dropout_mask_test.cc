#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/random.h"
#include "fa/flash_attention.h"
#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

Result<std::unique_ptr<Context>> ContextWith(int threads) {
  ContextOptions options;
  options.threads = threads;
  return Context::Create(options);
}

constexpr PhiloxState kState = {0x123456789ABCDEFull, 42};

TEST(GenerateDropoutMask, BitsFollowTheDefinitionAndTheRestIsLeftAlone) {
  for (const int64_t bits : {1, 7, 8, 9, 31, 33, 100, 32768, 32769, 70001}) {
    const auto bytes = static_cast<size_t>((bits + 7) / 8);
    std::vector<uint8_t> mask(bytes + 3, 0xAA);
    ASSERT_TRUE(GenerateDropoutMask(kState, 0.7f, bits, mask).ok());
    const uint64_t threshold = core::KeepThreshold(0.7f);
    for (int64_t f = 0; f < static_cast<int64_t>(bytes) * 8; ++f) {
      const bool want = f < bits && core::PhiloxWord(kState, static_cast<uint64_t>(f)) < threshold;
      ASSERT_EQ((mask[static_cast<size_t>(f / 8)] >> (f % 8) & 1) != 0, want) << bits << " " << f;
    }
    for (size_t i = bytes; i < mask.size(); ++i) EXPECT_EQ(mask[i], 0xAA);
  }
}

TEST(GenerateDropoutMask, BitsDoNotDependOnTheNumberOfThreads) {
  constexpr int64_t kBits = 5000003;
  std::vector<uint8_t> one(kBits / 8 + 1);
  const auto serial = ContextWith(1);
  ASSERT_TRUE(serial.ok());
  ASSERT_TRUE(GenerateDropoutMask(kState, 0.5f, kBits, one, serial->get()).ok());
  for (const int threads : {2, 3}) {
    std::vector<uint8_t> many(kBits / 8 + 1, 0xAA);
    const auto context = ContextWith(threads);
    ASSERT_TRUE(context.ok());
    ASSERT_TRUE(GenerateDropoutMask(kState, 0.5f, kBits, many, context->get()).ok());
    EXPECT_EQ(many, one);
  }
}

TEST(GenerateDropoutMask, KeepProbOneKeepsAll) {
  std::vector<uint8_t> mask(3);
  ASSERT_TRUE(GenerateDropoutMask(kState, 1.0f, 20, mask).ok());
  EXPECT_EQ(mask, (std::vector<uint8_t>{0xFF, 0xFF, 0x0F}));
}

TEST(GenerateDropoutMask, RefusesBadArguments) {
  std::vector<uint8_t> mask(4);
  for (const float keep_prob : {0.0f, 1.5f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(Refused(GenerateDropoutMask(kState, keep_prob, 8, mask), "want more than 0 and at most 1"));
  }
  EXPECT_TRUE(Refused(GenerateDropoutMask(kState, 0.5f, -1, mask), "bits=-1, want >= 0"));
  EXPECT_TRUE(Refused(GenerateDropoutMask(kState, 0.5f, 33, mask), "mask has 4 bytes, want >= 5"));
  EXPECT_TRUE(GenerateDropoutMask(kState, 0.5f, 32, mask).ok());
  EXPECT_TRUE(GenerateDropoutMask(kState, 0.5f, 0, {}).ok());
}

}  // namespace
}  // namespace fa::test
