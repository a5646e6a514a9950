// Every version of the backward gives the bits of fa::FlashAttentionGrad.
#include <gtest/gtest.h>

#include <tuple>

#include "aclnn/calls/backward_face.h"
#include "support/cases/random_backward_case.h"

namespace fa::test {
namespace {

using reference::PseType;

BackwardCase Usual() {
  BackwardCase c;
  c.forward.heads = 4;
  c.forward.heads_kv = 2;
  c.forward.d = 40;
  c.forward.dv = 24;
  c.forward.lengths = EqualLengths(2, 40, 75);
  return c;
}

BackwardCase Packed() {
  BackwardCase c = Usual();
  c.forward.layout = Layout::kTND;
  c.forward.lengths = {{33, 0, 40}, {40, 7, 75}};
  c.forward.tail_q = 3;
  c.forward.tail_kv = 2;
  return c;
}

BackwardCase WithSparseMode(BackwardCase c, reference::MaskRule rule, MaskForm dense_mask = MaskForm::kNone) {
  c.forward.sparse_mode = true;
  c.forward.mask = std::move(rule);
  c.forward.dense_mask = dense_mask;
  return c;
}

BackwardCase WithPse(BackwardCase c, PseForm form, PseType type) {
  c.forward.pse = form;
  c.forward.pse_type = type;
  return c;
}

class BackwardLayouts : public ::testing::TestWithParam<std::tuple<Layout, DType, BackwardVersion>> {};

TEST_P(BackwardLayouts, GivesTheBitsOfCpp) {
  const auto [layout, dtype, version] = GetParam();
  BackwardCase c = Usual();
  c.forward.layout = layout;
  c.forward.dtype = dtype;
  EXPECT_TRUE(SameAsCpp(c, version));
  c.forward.padding = c.padding = {.inner = 3, .middle = 5, .outer = 7};
  if (layout == Layout::kBSH || layout == Layout::kSBH) c.forward.padding.inner = c.padding.inner = 0;
  EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 3}), version)) << "causal, with gaps";
  c.forward.packing = c.packing = Packing::kTogether;
  EXPECT_TRUE(SameAsCpp(c, version)) << "all in one buffer";
}

INSTANTIATE_TEST_SUITE_P(All, BackwardLayouts,
                         ::testing::Combine(::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                            ::testing::Values(BackwardVersion::kGrad, BackwardVersion::kGradV2,
                                                              BackwardVersion::kGradV3)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param)) +
                                  "_" + Name(std::get<2>(param.param));
                         });

TEST(BackwardBits, MasksOfEverySparseMode) {
  const BackwardVersion version = BackwardVersion::kGrad;
  const reference::MaskRule band = {.mode = 0, .band = true, .pre = 40, .next = 60};
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), band, MaskForm::kPerHead), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 1}, MaskForm::kPlane), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 2}), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 4, .pre = 33, .next = 20}), version));
  const reference::MaskRule prefix = {.mode = 5, .prefix = {40, 71}};
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), prefix, MaskForm::kPerBatch), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 6, .prefix = {40, 71}}), version));
}

TEST(BackwardBits, BiasesAndTheirGradients) {
  for (const PseType type : {PseType::kScaleThenAdd, PseType::kAddThenScale}) {
    for (const PseForm form : {PseForm::kFull, PseForm::kRow}) {
      BackwardCase c = WithPse(Usual(), form, type);
      EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV2));
      c.forward.pse_broadcast_batch = true;
      EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV3));
      EXPECT_TRUE(SameAsCpp(WithPse(Packed(), form, type), BackwardVersion::kUnpaddingV2));
    }
  }
}

TEST(BackwardBits, SlopesAndTheirGradients) {
  for (const PseType type : {PseType::kSlopes, PseType::kSlopesSqrt}) {
    BackwardCase c = WithPse(Usual(), PseForm::kSlopes, type);
    c.forward.q_start = 5;
    c.forward.kv_start = -3;
    EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV2));
    EXPECT_TRUE(SameAsCpp(WithPse(Packed(), PseForm::kSlopes, type), BackwardVersion::kUnpaddingV5));
    c.forward.lengths = EqualLengths(1, 0, 0);
    EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV2)) << "they are written 0, dq, dk and dv are empty";
  }
}

TEST(BackwardBits, DropoutMask) {
  BackwardCase c = Usual();
  c.forward.dropout = DropoutForm::kMask;
  c.forward.keep_prob = 0.75F;
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGrad));
  c.forward.keep_prob = 1;
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV3)) << "the mask counts whenever it is given";
}

TEST(BackwardBits, SinkAndItsGradient) {
  BackwardCase c = Usual();
  c.forward.sink = true;
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV3));
  c.forward.lengths = EqualLengths(1, 0, 0);
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV3)) << "it is written 0, dq, dk and dv are empty";
  c = Packed();
  c.forward.sink = true;
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kUnpaddingV5));
}

TEST(BackwardBits, RowsWithoutKeysAndNoKeysAtAll) {
  BackwardCase c = WithSparseMode(Usual(), {.mode = 3});
  c.forward.lengths = EqualLengths(1, 90, 20);
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGrad));
  c = Usual();
  c.forward.lengths = EqualLengths(2, 9, 0);
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGrad)) << "dq is written 0, dk and dv are empty";
  c.forward.lengths = EqualLengths(2, 0, 9);
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGrad)) << "dk and dv are written 0, dq is empty";
}

class PackedBackward : public ::testing::TestWithParam<std::tuple<BackwardVersion, const char*>> {};

TEST_P(PackedBackward, GivesTheBitsOfCpp) {
  const auto [version, softmax_layout] = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    BackwardCase c = Packed();
    c.forward.dtype = dtype;
    EXPECT_TRUE(SameAsCpp(c, version, softmax_layout));
    c.forward.padding = c.padding = {.inner = 3, .middle = 5, .outer = 7};
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 3}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 4, .pre = 20, .next = 11}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 7, .pre = 200, .next = -9}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 8, .pre = 200, .next = 3}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 1}, MaskForm::kPlane), version, softmax_layout));
    c.forward.lengths = {{33, 70, 0, 0}, {40, 150, 0, 0}};
    EXPECT_TRUE(SameAsCpp(c, version, softmax_layout)) << "sums {33, 103, 0, 0}";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PackedBackward,
    ::testing::Values(std::tuple{BackwardVersion::kUnpadding, ""}, std::tuple{BackwardVersion::kUnpaddingV2, ""},
                      std::tuple{BackwardVersion::kUnpaddingV3, ""}, std::tuple{BackwardVersion::kUnpaddingV4, ""},
                      std::tuple{BackwardVersion::kUnpaddingV4, "same_as_input"},
                      std::tuple{BackwardVersion::kUnpaddingV5, ""},
                      std::tuple{BackwardVersion::kUnpaddingV5, "same_as_input"}),
    [](const auto& param) { return std::string(Name(std::get<0>(param.param))) + std::get<1>(param.param); });

TEST(BackwardBits, HeadsInTwoParts) {
  for (const auto version : {BackwardVersion::kUnpaddingV3, BackwardVersion::kUnpaddingV5}) {
    BackwardCase c = Packed();
    c.forward.d_rope = 16;
    EXPECT_TRUE(SameAsCpp(c, version));
    c.forward.dtype = DType::kBF16;
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 3}), version));
  }
}

TEST(BackwardBits, RandomCases) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    BackwardCase c = RandomBackwardCase(seed);
    if (!AsOnTheDevice(&c.forward)) continue;
    accepted += BackwardProblem(c).MakePlan(nullptr).ok() ? 1 : 0;
    const BackwardVersion version = c.forward.packed() ? BackwardVersion::kUnpaddingV5 : BackwardVersion::kGradV3;
    EXPECT_TRUE(SameAsCpp(c, version, seed % 2 == 0 && c.forward.packed() ? "same_as_input" : "")) << "seed " << seed;
  }
  EXPECT_GT(accepted, 50) << "most of them must say something";
}

}  // namespace
}  // namespace fa::test
