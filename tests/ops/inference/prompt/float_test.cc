// Prompt attention of f32, f16 and bf16 gives the numbers of the dense forward. The cases have lengths, masks and
// biases that are larger than needed, and int8 outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "fa/flash_attention.h"
#include "prompt_case.h"
#include "support/cases/forward_problem.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

class PromptFloat : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  [[nodiscard]] static PromptCase Case() {
    PromptCase c;
    c.dtype = c.out_dtype = std::get<1>(GetParam());
    return c;
  }
  [[nodiscard]] static Context* context() { return ContextOf(std::get<0>(GetParam())); }
};

TEST_P(PromptFloat, EveryLayoutWithLengthsOfItsOwn) {
  for (const Layout layout : {Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kBNSD_BSND}) {
    PromptCase c = Case();
    c.layout = layout;
    c.heads = 4;
    c.heads_kv = 2;
    c.batch = 3;
    c.sq = 37;
    c.sk = 70;
    c.lengths_q = {37, 5, 0};
    c.lengths_kv = {66, 70, 13};
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << Name(layout);
  }
}

TEST_P(PromptFloat, TheForwardsFeaturesUnderLengths) {
  for (const auto pse_type : {reference::PseType::kAddThenScale, reference::PseType::kSlopes}) {
    PromptCase c = Case();
    c.heads = 4;
    c.heads_kv = 2;
    c.batch = 3;
    c.sq = 37;
    c.sk = 70;
    c.lengths_q = {37, 5, 0};
    c.lengths_kv = {0, 70, 13};
    c.mask.mode = 3;
    c.pse = pse_type == reference::PseType::kAddThenScale;
    c.pse_type = pse_type;
    c.q_start = 2;
    c.d_rope = 8;
    c.sink = true;
    c.softcap = pse_type == reference::PseType::kAddThenScale ? 0 : 3;
    c.statistics = true;
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << c;
  }
}

TEST_P(PromptFloat, PackedSequences) {
  PromptCase c = Case();
  c.layout = Layout::kTND;
  c.heads = 4;
  c.batch = 4;
  c.lengths_q = {3, 0, 40, 17};
  c.lengths_kv = {9, 4, 40, 0};
  c.mask.mode = 2;
  EXPECT_TRUE(RunsLikeTheReference(c, context()));
}

TEST_P(PromptFloat, BottomRightMasksAreAnchoredAtTheLengths) {
  for (const int mode : {0, 2, 3, 4}) {
    PromptCase c = Case();
    c.batch = 3;
    c.sq = 40;
    c.sk = 50;
    c.lengths_q = {40, 12, 33};
    c.lengths_kv = {20, 50, 33};
    c.mask = {.mode = mode, .band = false, .pre = 9, .next = 3};
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << "mode " << mode;
  }
}

TEST_P(PromptFloat, MasksMayBeWiderThanTheCall) {
  for (const PromptMask mask : {PromptMask::kPlane, PromptMask::kBatch, PromptMask::kBatch4d, PromptMask::kHeads}) {
    for (const int64_t wider : {0, 13}) {
      PromptCase c = Case();
      c.batch = 2;
      c.sq = 20;
      c.sk = 41;
      c.lengths_kv = {41, 30};
      c.dense_mask = mask;
      c.wider = wider;
      c.mask = {.mode = 0, .band = true, .pre = 15, .next = 20};
      c.sparse_mode = true;
      EXPECT_TRUE(RunsLikeTheReference(c, context())) << static_cast<int>(mask) << " wider by " << wider;
    }
  }
}

TEST_P(PromptFloat, ABiasIsAddedToTheScaledScore) {
  for (const bool broadcast : {false, true}) {
    PromptCase c = Case();
    c.batch = 2;
    c.sq = 19;
    c.sk = 45;
    c.pse = true;
    c.pse_broadcast = broadcast;
    c.wider = 3;
    c.scale = 0.4F;
    c.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << broadcast;
  }
}

TEST_P(PromptFloat, Int8Outputs) {
  for (const bool per_column : {false, true}) {
    for (const bool with_offset : {false, true}) {
      PromptCase c = Case();
      c.out_dtype = DType::kI8;
      c.heads = 4;
      c.d = 24;
      c.dv = 21;
      c.batch = 2;
      c.sq = 33;
      c.sk = 40;
      c.lengths_q = {33, 20};
      c.quant2 = 60;
      c.per_column = per_column;
      c.with_offset = with_offset;
      c.offset2 = -7;
      c.bf16_scales = c.dtype == DType::kBF16 && per_column;
      EXPECT_TRUE(RunsLikeTheReference(c, context())) << per_column << with_offset;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(IsaAndType, PromptFloat,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + Name(std::get<1>(info.param));
                         });

TEST(PromptFlashAttention, OneLengthStandsForAll) {
  PromptCase c;
  c.batch = 3;
  c.lengths_q = {9, 9, 9};
  c.lengths_kv = {11, 11, 11};
  c.one_length = true;
  EXPECT_TRUE(RunsLikeTheReference(c, nullptr));
}

TEST(PromptFlashAttention, IsTheForwardToTheBit) {
  PromptCase c;
  c.dtype = c.out_dtype = DType::kBF16;
  c.heads = 4;
  c.d = c.dv = 64;
  c.sq = c.sk = 300;
  c.mask.mode = 3;
  const PromptProblem prompt(c);
  ASSERT_TRUE(prompt.Run(nullptr).ok());
  const std::vector<double> got = prompt.Outputs();
  AttentionArgs forward;
  const PromptAttentionArgs args = prompt.args();
  forward.q = args.q;
  forward.k = args.k;
  forward.v = args.v;
  forward.out = args.out;
  AttentionOptions options;
  options.mask = Mask::Causal();
  ASSERT_TRUE(FlashAttention(forward, options).ok());
  EXPECT_EQ(got, prompt.Outputs());
}

PromptAttentionArgs PromptArgs(const AttentionArgs& forward) {
  PromptAttentionArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.pse = forward.pse;
  args.dense_mask = forward.dense_mask;
  args.sink = forward.sink;
  args.cu_q = forward.cu_q;
  args.cu_kv = forward.cu_kv;
  args.out = forward.out;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
  args.lse = forward.lse;
  return args;
}

PromptAttentionOptions PromptOptions(const AttentionOptions& forward) {
  PromptAttentionOptions options;
  options.layout = forward.layout;
  options.heads = forward.heads;
  options.scale = forward.scale;
  options.mask = forward.mask;
  options.pse_type = forward.pse_type;
  CopyNumbers(forward, options);
  return options;
}

TEST(PromptFlashAttention, HasTheForwardsFeatures) {
  for (const auto pse_type : {reference::PseType::kScaleThenAdd, reference::PseType::kSlopes}) {
    for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
      ForwardCase c;
      c.dtype = DType::kBF16;
      c.layout = layout;
      c.heads = 4;
      c.heads_kv = 2;
      c.lengths = {{40, 40}, {40, 40}};
      c.d_rope = 8;
      c.sink = true;
      c.pse = pse_type == reference::PseType::kSlopes ? PseForm::kSlopes : PseForm::kFull;
      c.pse_type = pse_type;
      c.softcap = 3;
      c.mask.mode = 3;
      const ForwardProblem forward(c), prompt(c);
      ASSERT_TRUE(FlashAttention(forward.args(), forward.options()).ok());
      const Status status = PromptFlashAttention(PromptArgs(prompt.args()), PromptOptions(prompt.options()));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(SameBits(prompt.Outputs(), forward.Outputs())) << c;
    }
  }
}

TEST(PromptFlashAttention, Int8InputsRefuseThem) {
  PromptCase c;
  c.dtype = DType::kI8;
  c.out_dtype = DType::kF16;
  const PromptProblem problem(c);
  std::vector<float> floats(1024);
  const MutableTensorView rows{floats.data(), DType::kF32, {c.batch, c.heads, c.sq}, {}};
  const auto message = [&](const std::function<void(PromptAttentionArgs*, PromptAttentionOptions*)>& change) {
    PromptAttentionArgs args = problem.args();
    PromptAttentionOptions options = problem.options();
    change(&args, &options);
    return std::string(PromptFlashAttention(args, options).message());
  };
  using Args = PromptAttentionArgs*;
  using Options = PromptAttentionOptions*;
  EXPECT_THAT(message([&](Args a, Options) { a->q_rope = rows; }), HasSubstr("q_rope: given, want none"));
  EXPECT_THAT(message([&](Args a, Options) { a->sink = rows; }), HasSubstr("sink: given, want none"));
  EXPECT_THAT(message([&](Args a, Options) { a->softmax_max = rows; }), HasSubstr("softmax_max: given, want none"));
  EXPECT_THAT(message([&](Args a, Options) { a->lse = rows; }), HasSubstr("lse: given, want none"));
  EXPECT_THAT(message([&](Args, Options o) { o->softcap = 1; }), HasSubstr("softcap=1, want 0 (q.dtype=i8)"));
  EXPECT_THAT(message([&](Args, Options o) { o->pse_type = PseType::kSlopes; }),
              HasSubstr("pse_type=2, want 0 (q.dtype=i8)"));
}

// Each sequence of a batch gives the bits that it gives as the only one, with tensors cut to its lengths.
TEST(PromptFlashAttention, ABatchElementHasTheBitsOfItsOwn) {
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    PromptCase c;
    c.dtype = dtype;
    c.out_dtype = DType::kF16;
    c.sq = 70;
    c.sk = 90;
    c.mask.mode = 3;
    PromptCase padded = c;
    padded.batch = 2;
    padded.lengths_q = {50, 70};
    padded.lengths_kv = {61, 90};
    PromptCase alone = c;
    alone.sq = 50;
    alone.sk = 61;
    const PromptProblem of_two(padded), of_one(alone);
    ASSERT_TRUE(of_two.Run(nullptr).ok());
    ASSERT_TRUE(of_one.Run(nullptr).ok());
    std::vector<double> first = of_two.Outputs();
    first.resize(of_one.Outputs().size());
    EXPECT_EQ(first, of_one.Outputs()) << Name(dtype);
  }
}

TEST(PromptFlashAttention, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : {DType::kF32, DType::kI8}) {
    PromptCase c;
    c.dtype = dtype;
    c.out_dtype = dtype == DType::kI8 ? DType::kF16 : dtype;
    c.batch = 2;
    c.heads = 4;
    c.sq = 300;
    c.sk = 200;
    c.lengths_kv = {200, 77};
    c.d = 40;
    const PromptProblem problem(c);
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 8}) {
      ASSERT_TRUE(problem.Run(ContextOf(DetectIsa(), threads)).ok());
      if (first.empty()) first = problem.Outputs();
      EXPECT_EQ(problem.Outputs(), first) << Name(dtype) << ", " << threads << " threads";
    }
  }
}

TEST(PromptFlashAttention, APlanRunsOnThePlannedLengthsOnly) {
  PromptCase c;
  c.lengths_q = {9};
  const PromptProblem problem(c);
  const auto plan = PlanPromptFlashAttention(problem.args(), problem.options());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->info().op, "prompt");
  EXPECT_TRUE(plan->Run(problem.args()).ok());
  PromptAttentionArgs args = problem.args();
  const int64_t other[] = {10};
  args.lengths_q = other;
  const Status refused = plan->Run(args);
  EXPECT_NE(refused.message().find("lengths_q[0]=10, want 9"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace fa::test
