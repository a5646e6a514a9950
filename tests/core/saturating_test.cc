#include "core/saturating.h"

#include <gtest/gtest.h>

#include "core/memory.h"

namespace fa::core {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

TEST(Saturating, ResultsBeyond63BitsAreTheGreatest) {
  EXPECT_EQ(SaturatedSum(kHuge, kHuge), kSaturated);
  EXPECT_EQ(SaturatedSum(kHuge, kHuge - 1), kSaturated);
  EXPECT_EQ(SaturatedSum(kHuge, kHuge - 2), kSaturated - 1);
  EXPECT_EQ(SaturatedProduct(kHuge, 2), kSaturated);
  EXPECT_EQ(SaturatedProduct(kHuge, 2, kHuge), kSaturated);
  EXPECT_EQ(SaturatedProduct(kSaturated, 1), kSaturated);
  EXPECT_EQ(SaturatedProduct(3, 5, 7), 105);
  EXPECT_EQ(SaturatedProduct(7), 7);
}

TEST(Saturating, ANoughtAmongTheFactorsIsANought) {
  EXPECT_EQ(SaturatedProduct(kHuge, kHuge, 0), 0);
  EXPECT_EQ(SaturatedProduct(0, kHuge, kHuge), 0);
}

TEST(Saturating, RoundsUpToTheGreatestMultiple) {
  EXPECT_EQ(SaturatedRoundUp(0, 64), 0);
  EXPECT_EQ(SaturatedRoundUp(1, 64), 64);
  EXPECT_EQ(SaturatedRoundUp(64, 64), 64);
  EXPECT_EQ(SaturatedRoundUp(65, 48), 96);
  EXPECT_EQ(SaturatedRoundUp(kHuge, 64), kHuge);
  EXPECT_EQ(SaturatedRoundUp(kSaturated - 63, 64), kSaturated - 63);
  EXPECT_EQ(SaturatedRoundUp(kSaturated - 62, 64), kSaturated - 63);
  EXPECT_EQ(SaturatedRoundUp(kSaturated, 64), kSaturated - 63);
}

TEST(Saturating, ShareIsExactWhateverItsTerms) {
  EXPECT_EQ(ShareOf(kHuge, kHuge / 4, kHuge), kHuge / 4);
  EXPECT_EQ(ShareOf(10, 1, 3), 3);
}

TEST(Memory, IsWhatAMachineCanHave) {
  EXPECT_GT(MemoryBytes(), int64_t{1} << 28);
  EXPECT_LE(MemoryBytes(), kAddressSpaceBytes);
}

}  // namespace
}  // namespace fa::core
