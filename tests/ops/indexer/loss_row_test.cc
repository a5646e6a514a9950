#include "ops/indexer/loss_row.h"

#include <gtest/gtest.h>

#include <limits>

namespace fa::ops {
namespace {

// If the statistics belong to another selection, every probability may be near the smallest f32 number.
TEST(LossRow, TargetOfASubnormalSumIsFinite) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  float p[] = {tiny, 3 * tiny, 0};
  NormaliseRow(RowSum(p, 3), 3, p);
  EXPECT_EQ(p[0], 0.25F);
  EXPECT_EQ(p[1], 0.75F);
  EXPECT_EQ(p[2], 0.0F);
}

}  // namespace
}  // namespace fa::ops
