// Compares prompt attention of int8 with its formula, which the reference computes step by step in double. All levels
// give the same integers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/inference/strided_scales.h"
#include "prompt_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

PromptCase Int8Case(DType out) {
  PromptCase c;
  c.dtype = DType::kI8;
  c.out_dtype = out;
  c.heads = 4;
  c.heads_kv = 2;
  c.sq = 45;
  c.sk = 83;
  c.d = 32;
  c.dv = 32;
  c.deq1 = 1.0F / 2000;
  c.quant2 = 60;
  return c;
}

class PromptInt8 : public ::testing::TestWithParam<Isa> {
 protected:
  [[nodiscard]] static Context* context() { return ContextOf(GetParam()); }
};

TEST_P(PromptInt8, EveryHeadSize) {
  for (const int64_t d : {1, 2, 3, 4, 5, 7, 8, 16, 17, 63, 64, 65, 100, 128, 257}) {
    for (const DType out : {DType::kF16, DType::kI8}) {
      PromptCase c = Int8Case(out);
      c.d = d;
      c.dv = d % 2 == 0 ? d : d + 3;
      c.deq1 = 1.0F / (300 * std::sqrt(static_cast<float>(d)));
      EXPECT_TRUE(RunsLikeTheReference(c, context())) << "d " << d << ", " << Name(out);
    }
  }
}

TEST_P(PromptInt8, EveryTailOfRowsAndKeys) {
  for (int64_t rows = 1; rows <= 70; rows += rows < 20 ? 1 : 7) {
    PromptCase c = Int8Case(DType::kI8);
    c.heads = c.heads_kv;
    c.sq = rows;
    c.sk = 71 - rows;
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << "Sq " << rows;
  }
}

TEST_P(PromptInt8, EveryLayoutWithLengths) {
  for (const Layout layout : {Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kBNSD_BSND, Layout::kTND}) {
    PromptCase c = Int8Case(DType::kF16);
    c.layout = layout;
    c.batch = 3;
    c.lengths_q = {45, 0, 20};
    c.lengths_kv = {30, 83, 83};
    if (layout != Layout::kBSH) c.padding = {.inner = 3, .middle = 5, .outer = 7};
    c.placement = {.place = Place::kAtEnd, .misalignment = 0};
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << Name(layout);
  }
}

TEST_P(PromptInt8, EveryMask) {
  for (const int mode : {0, 2, 3, 4}) {
    PromptCase c = Int8Case(DType::kI8);
    c.batch = 2;
    c.lengths_q = {45, 30};
    c.lengths_kv = {83, 20};
    c.mask = {.mode = mode, .band = false, .pre = 11, .next = 4};
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << "mode " << mode;
  }
  for (const PromptMask mask : {PromptMask::kPlane, PromptMask::kBatch, PromptMask::kHeads}) {
    PromptCase c = Int8Case(DType::kF16);
    c.batch = 2;
    c.dense_mask = mask;
    c.wider = 9;
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << "dense mask " << static_cast<int>(mask);
  }
}

TEST_P(PromptInt8, ABias) {
  PromptCase c = Int8Case(DType::kF16);
  c.pse = true;
  c.wider = 2;
  c.mask.mode = 3;
  EXPECT_TRUE(RunsLikeTheReference(c, context()));
}

TEST_P(PromptInt8, ScalesOfEverySignAndForm) {
  const auto check = [&](float deq1, float quant1, DType out) {
    PromptCase c = Int8Case(out);
    c.deq1 = deq1;
    c.quant1 = quant1;
    c.deq2 = -c.deq2;
    c.packed_deq = quant1 > 0;
    EXPECT_TRUE(RunsLikeTheReference(c, context())) << deq1 << " " << quant1 << " " << Name(out);
  };
  ForEachCase(check, Axis{"deq1", {1.0F / 2000, -1.0F / 2000, 0.0F}},
              Axis{"quant1", {127.0F, -127.0F, 255.0F, -300.0F, 100.5F, 0.0F, 3.0F}},
              Axis{"out", {DType::kF16, DType::kI8}});
}

TEST_P(PromptInt8, OutputScalesAndOffsets) {
  for (const bool per_column : {false, true}) {
    for (const bool with_offset : {false, true}) {
      PromptCase c = Int8Case(DType::kI8);
      c.batch = 2;
      c.lengths_q = {45, 12};
      c.per_column = per_column;
      c.with_offset = with_offset;
      c.offset2 = 5.25F;
      EXPECT_TRUE(RunsLikeTheReference(c, context())) << per_column << with_offset;
    }
  }
}

// The maximum is taken over the whole row, and products are exact, so the bits do not depend on how the keys are
// divided into blocks. Sums over more than 65536 keys are computed in int64.
TEST_P(PromptInt8, LongRows) {
  PromptCase c = Int8Case(DType::kF16);
  c.heads = c.heads_kv = 1;
  c.sq = 3;
  c.sk = 70000;
  c.d = 4;
  c.dv = 5;
  c.deq1 = 1e-6F;
  EXPECT_TRUE(RunsLikeTheReference(c, context()));
}

TEST_P(PromptInt8, RowsOfManyKeysTakeNarrowStrips) {
  PromptCase c = Int8Case(DType::kI8);
  c.heads = c.heads_kv = 1;
  c.sq = 40;
  c.sk = 5000;
  c.d = c.dv = 8;
  EXPECT_TRUE(RunsLikeTheReference(c, context()));
}

TEST_P(PromptInt8, GivesTheIntegersOfTheOtherLevels) {
  for (const bool pse : {false, true}) {
    for (const DType out : {DType::kF16, DType::kI8}) {
      PromptCase c = Int8Case(out);
      c.sq = 150;
      c.sk = 333;
      c.d = 72;
      c.dv = 40;
      c.deq1 = 1.0F / 3000;
      c.pse = pse;
      c.mask.mode = 3;
      const PromptProblem here(c), portable(c);
      ASSERT_TRUE(here.Run(context()).ok());
      ASSERT_TRUE(portable.Run(ContextOf(Isa::kPortable)).ok());
      EXPECT_EQ(here.Outputs(), portable.Outputs()) << Name(out) << (pse ? ", pse" : "");
    }
  }
}

TEST_P(PromptInt8, RowsThatADenseMaskEmptiesAreZeroBeforeTheOffset) {
  PromptCase c = Int8Case(DType::kI8);
  c.heads = c.heads_kv = 1;
  c.dense_mask = PromptMask::kPlane;
  c.with_offset = true;
  c.offset2 = 9;
  const PromptProblem problem(c);
  const PromptAttentionArgs args = problem.args();
  std::memset(const_cast<void*>(args.dense_mask.data), 1, static_cast<size_t>(c.sq * c.sk));
  ASSERT_TRUE(PromptFlashAttention(args, problem.options(), context()).ok());
  for (const double value : problem.Outputs()) EXPECT_EQ(value, 9);
}

INSTANTIATE_TEST_SUITE_P(Isa, PromptInt8, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

// Scales and offsets are read in the order of their shape, whatever their strides are.
TEST(PromptInt8Output, ScalesMayHaveAnyStrides) {
  for (const DType dtype : {DType::kI8, DType::kBF16}) {
    PromptCase c;
    c.dtype = dtype;
    c.out_dtype = DType::kI8;
    c.heads = 4;
    const PromptProblem problem(c);
    const DType of_scales = dtype == DType::kBF16 ? dtype : DType::kF32;
    const auto scales = MakeStridedScales(of_scales, 4, c.dv, 20, 60);
    const auto offsets = MakeStridedScales(of_scales, 4, c.dv, -40, 40);
    const auto run = [&](const TensorView& scale, const TensorView& offset) {
      PromptAttentionArgs args = problem.args();
      args.quant_scale2 = scale;
      args.quant_offset2 = offset;
      const Status status = PromptFlashAttention(args, problem.options());
      EXPECT_TRUE(status.ok()) << status.message();
      return problem.Outputs();
    };
    for (size_t i = 0; i < scales.size(); ++i) {
      const StridedScales &scale = scales[i], &offset = offsets[(i + 3) % offsets.size()];
      EXPECT_EQ(run(scale.tensor.view(), offset.tensor.view()), run(scale.packed.view(), offset.packed.view()))
          << scale.name << ", " << offset.name;
    }
  }
}

}  // namespace
}  // namespace fa::test
