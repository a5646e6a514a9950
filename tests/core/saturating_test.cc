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
