// Tests forward, backward, merge and dropout mask at absurd sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/merge.h"
#include "ops/limits/claimed_tensors.h"
#include "ops/limits/dense_sizes.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

TEST(DenseLimits, ForwardRefusesAbsurdSizesOrPlansThem) {
  const HangAlarm alarm;
  for (const DenseSizes& sizes : AbsurdDenseSizes()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const Mask& mask : {Mask::None(), Mask::Causal()}) {
        const AttentionOptions options{.mask = mask};
        ExpectRefusedOrSmall(PlanFlashAttention(ForwardArgs(sizes, dtype), options), Text(sizes));
      }
    }
  }
}

TEST(DenseLimits, BackwardRefusesAbsurdSizesOrPlansThem) {
  const HangAlarm alarm;
  for (const DenseSizes& sizes : AbsurdDenseSizes()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Mask& mask : {Mask::None(), Mask::Causal(), Mask::Band(1000, 0)}) {
        const AttentionOptions options{.mask = mask};
        ExpectRefusedOrSmall(PlanFlashAttentionGrad(BackwardArgs(sizes, dtype), options), Text(sizes));
      }
    }
  }
}

TEST(DenseLimits, KeysBeyond31BitsAreRefusedByTheNameOfTheirTensor) {
  const HangAlarm alarm;
  for (const int exponent : {31, 40, 50}) {
    const DenseSizes sizes{.sq = 1, .sk = Power(exponent)};
    const std::string want =
        "invalid argument: k.shape[2]=" + std::to_string(sizes.sk) + ", want at most " + std::to_string(Power(31) - 1);
    EXPECT_EQ(PlanFlashAttention(ForwardArgs(sizes), {}).status().message(), want);
    EXPECT_EQ(PlanFlashAttentionGrad(BackwardArgs(sizes), {}).status().message(), want);
  }
  EXPECT_TRUE(PlanFlashAttention(ForwardArgs({.sq = 1, .sk = Power(31) - 1}), {}).ok());
}

TEST(DenseLimits, BackwardOfOneKeySaysHowManyTasksAndHowManyThereCanBe) {
  const HangAlarm alarm;
  for (const int exponent : {38, 40}) {
    const auto plan = PlanFlashAttentionGrad(BackwardArgs({.sq = Power(exponent), .sk = 1}), {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(plan.status().message(), ::testing::HasSubstr(" tasks, want at most "));
  }
}

TEST(DenseLimits, GradientsOfParametersOverAbsurdKeysAreRefused) {
  const HangAlarm alarm;
  // If all rows of a head share one bias, the gradient needs one sum per head and key.
  AttentionGradArgs args = BackwardArgs({.n = Power(30), .n_kv = 1, .sq = 0, .sk = Power(30), .d = 1, .dv = 1});
  args.pse = Claim({1, Power(30), 1, Power(30)});
  args.dpse = ClaimOutput(args.pse.shape);
  ExpectRefused(PlanFlashAttentionGrad(args, {.pse_type = PseType::kScaleThenAdd}).status(), "dpse of keys");
  // If the batch shares one bias, the gradient needs one sum per pair.
  args = BackwardArgs({.b = 2, .n = 2, .n_kv = 1, .sq = Power(18), .sk = Power(19)});
  args.pse = Claim({1, 2, Power(18), Power(19)});
  args.dpse = ClaimOutput({1, 2, Power(18), Power(19)});
  ExpectRefused(PlanFlashAttentionGrad(args, {.pse_type = PseType::kScaleThenAdd}).status(), "dpse of pairs");
}

TEST(DenseLimits, PackedSequencesAndFusedHeadsOfAbsurdSizes) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes(Power(40))) {
    const std::vector<int64_t> cu{size / 2, size};
    AttentionArgs args;
    args.q = Claim({size, 2, 8});
    args.k = args.v = Claim({size, 1, 8});
    args.out = ClaimOutput({size, 2, 8});
    args.cu_q = args.cu_kv = cu;
    ExpectRefused(PlanFlashAttention(args, {.layout = Layout::kTND}).status(), "T " + std::to_string(size));

    AttentionArgs fused;
    fused.q = Claim({1, 64, size});
    fused.k = fused.v = Claim({1, 64, size});
    fused.out = ClaimOutput({1, 64, size});
    for (const int64_t heads : {int64_t{1}, size / 8, size, int64_t{3}}) {
      const auto plan = PlanFlashAttention(fused, {.layout = Layout::kBSH, .heads = heads});
      ExpectRefused(plan.status(), "BSH " + std::to_string(size) + " of " + std::to_string(heads));
    }
  }
}

TEST(DenseLimits, MasksAndBiasesOfAbsurdSizes) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes()) {
    AttentionArgs args = ForwardArgs({});
    args.dense_mask = Claim({size, size}, DType::kU8);
    ExpectRefused(PlanFlashAttention(args, {}).status(), "mask");
    args.dense_mask = {};
    args.pse = Claim({1, 2, size, size});
    ExpectRefused(PlanFlashAttention(args, {}).status(), "pse");
    args = ForwardArgs({.sq = 1, .sk = std::max(size, Power(40)), .d = 1, .dv = 1});
    args.drop_mask = Claim({16}, DType::kU8);
    ExpectRefused(PlanFlashAttention(args, {.keep_prob = 0.5F}).status(), "drop_mask");
  }
}

TEST(DenseLimits, MergeOfAbsurdSizesWithoutMemoryIsRefusedOrEmpty) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes()) {
    for (const Dims& shape : {Dims{size, 2, 4, 8}, {1, size, 4, 8}, {1, 2, size, 8}, {1, 2, 4, size}}) {
      const Dims rows{shape[0], shape[1], shape[2]};
      MergeArgs args;
      args.prev_out = args.cur_out = {nullptr, DType::kF32, shape, {}};
      args.prev_max = args.prev_sum = args.cur_max = args.cur_sum = {nullptr, DType::kF32, rows, {}};
      args.out = {nullptr, DType::kF32, shape, {}};
      args.softmax_max = args.softmax_sum = {nullptr, DType::kF32, rows, {}};
      EXPECT_FALSE(MergePartials(args, {.layout = Layout::kBNSD}).ok()) << size;
    }
    const Dims empty{0, size > Power(50) ? 2 : size, 0, 8};
    MergeArgs args;
    args.prev_out = args.cur_out = {nullptr, DType::kF32, empty, {}};
    args.prev_max = args.prev_sum = args.cur_max = args.cur_sum = {nullptr, DType::kF32, {0, empty[1], 0}, {}};
    args.out = {nullptr, DType::kF32, empty, {}};
    args.softmax_max = args.softmax_sum = {nullptr, DType::kF32, {0, empty[1], 0}, {}};
    EXPECT_TRUE(MergePartials(args, {.layout = Layout::kBNSD}).ok()) << size;
  }
}

TEST(DenseLimits, ADropoutMaskOfAbsurdSizeWantsItsBytes) {
  const HangAlarm alarm;
  std::vector<uint8_t> mask(16);
  for (const int64_t size : AbsurdSizes()) {
    ExpectRefused(GenerateDropoutMask({1, 0}, 0.5F, size, mask), "bits " + std::to_string(size));
  }
}

}  // namespace
}  // namespace fa::test
