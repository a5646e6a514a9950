// The interface only translates: every version gives the bits of fa::FlashAttention.
#include <gtest/gtest.h>

#include <tuple>

#include "aclnn/calls/forward_face.h"
#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"

namespace fa::test {
namespace {

using reference::PseType;

ForwardCase Usual() {
  ForwardCase c;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = 40;
  c.dv = 24;
  c.lengths = EqualLengths(2, 70, 150);
  return c;
}

ForwardCase Packed() {
  ForwardCase c = Usual();
  c.layout = Layout::kTND;
  c.lengths = {{33, 0, 70, 5, 1}, {40, 7, 150, 0, 1}};
  c.tail_q = 3;
  c.tail_kv = 2;
  return c;
}

ForwardCase WithSparseMode(ForwardCase c, reference::MaskRule rule, MaskForm dense_mask = MaskForm::kNone) {
  c.sparse_mode = true;
  c.mask = std::move(rule);
  c.dense_mask = dense_mask;
  return c;
}

class ForwardLayouts : public ::testing::TestWithParam<std::tuple<Layout, DType, ForwardVersion>> {};

TEST_P(ForwardLayouts, GivesTheBitsOfCpp) {
  const auto [layout, dtype, version] = GetParam();
  ForwardCase c = Usual();
  c.layout = layout;
  c.dtype = dtype;
  EXPECT_TRUE(SameAsCpp(c, version));
  c.padding = {.inner = 3, .middle = 5, .outer = 7};
  if (layout == Layout::kBSH || layout == Layout::kSBH) c.padding.inner = 0;  // all heads of a row lie side by side
  EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 3}), version)) << "causal, with gaps";
  c.packing = Packing::kTogether;
  EXPECT_TRUE(SameAsCpp(c, version)) << "all in one buffer";
}

INSTANTIATE_TEST_SUITE_P(All, ForwardLayouts,
                         ::testing::Combine(::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                            ::testing::Values(ForwardVersion::kScore, ForwardVersion::kScoreV2,
                                                              ForwardVersion::kScoreV3)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param)) +
                                  "_" + Name(std::get<2>(param.param));
                         });

class ForwardMasks : public ::testing::TestWithParam<ForwardVersion> {};

TEST_P(ForwardMasks, OfEverySparseModeGiveTheBitsOfCpp) {
  const ForwardVersion version = GetParam();
  for (const MaskForm form : {MaskForm::kPlane, MaskForm::kPlane4d, MaskForm::kPerBatch, MaskForm::kPerHead}) {
    EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 0, .band = true, .pre = 40, .next = 60}, form), version));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 1}, form), version));
  }
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 2}), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 3}), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 4, .pre = 33, .next = 20}), version));
  const reference::MaskRule prefix = {.mode = 5, .prefix = {90, 131}};
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), prefix, MaskForm::kPerBatch), version));
  EXPECT_TRUE(SameAsCpp(WithSparseMode(Usual(), {.mode = 6, .prefix = {90, 131}}), version));
}

INSTANTIATE_TEST_SUITE_P(All, ForwardMasks,
                         ::testing::Values(ForwardVersion::kScore, ForwardVersion::kScoreV2, ForwardVersion::kScoreV3),
                         [](const auto& param) { return Name(param.param); });

TEST(ForwardBits, DenseMasksOfEveryByteType) {
  for (const DType dtype : {DType::kU8, DType::kBool, DType::kI8}) {
    ForwardCase c = WithSparseMode(Usual(), {.mode = 1}, MaskForm::kPlane);
    c.dense_mask_dtype = dtype;
    EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
  }
}

TEST(ForwardBits, BiasesOfBothOrdersAndShapes) {
  for (const PseType type : {PseType::kScaleThenAdd, PseType::kAddThenScale}) {
    for (const PseForm form : {PseForm::kFull, PseForm::kRow}) {
      ForwardCase c = Usual();
      c.dtype = DType::kF16;
      c.pse = form;
      c.pse_type = type;
      EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV2));
      c.pse_broadcast_batch = true;
      EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV3));
      if (type == PseType::kAddThenScale) {
        EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
      }
      c.layout = Layout::kTND;
      c.lengths = Packed().lengths;
      c.pse_broadcast_batch = false;
      EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kVarLenV5));
    }
  }
}

TEST(ForwardBits, CompressedBias) {
  ForwardCase c = WithSparseMode(Usual(), {.mode = 2});
  c.heads = c.heads_kv = 1;
  c.d = c.dv = 4;
  c.lengths = EqualLengths(1, 1100, 1100);
  c.pse = PseForm::kCompressed;
  c.pse_type = PseType::kAddThenScale;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
}

TEST(ForwardBits, SlopesWithStartIndices) {
  for (const PseType type : {PseType::kSlopes, PseType::kSlopesSqrt}) {
    ForwardCase c = Usual();
    c.pse = PseForm::kSlopes;
    c.pse_type = type;
    c.q_start = 5;
    c.kv_start = -3;
    EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV2));
    c.pse_broadcast_batch = true;
    EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV3));
    c.layout = Layout::kTND;
    c.lengths = Packed().lengths;
    for (const auto version : {ForwardVersion::kVarLenV2, ForwardVersion::kVarLenV3, ForwardVersion::kVarLenV5}) {
      EXPECT_TRUE(SameAsCpp(c, version));
    }
  }
}

TEST(ForwardBits, SlopesInTheBandOfModeEight) {
  ForwardCase c = WithSparseMode(Packed(), {.mode = 8, .pre = 100, .next = 4});
  c.lengths = {{10, 24, 32}, {11, 24, 32}};
  c.pse = PseForm::kSlopes;
  c.pse_type = PseType::kSlopes;
  c.q_start = 2;
  c.kv_start = 1;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kVarLenV2));
}

TEST(ForwardBits, DropoutMask) {
  ForwardCase c = Usual();
  c.dropout = DropoutForm::kMask;
  c.keep_prob = 0.75F;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
  c.keep_prob = 1;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV2)) << "the mask counts whenever it is given";
  c.layout = Layout::kTND;
  c.lengths = Packed().lengths;
  c.keep_prob = 0.5F;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kVarLen));
}

TEST(ForwardBits, Sink) {
  ForwardCase c = Usual();
  c.sink = true;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV3));
  c.layout = Layout::kTND;
  c.lengths = Packed().lengths;
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kVarLenV5));
}

TEST(ForwardBits, RowsWithoutKeysAndNoKeysAtAll) {
  ForwardCase c = WithSparseMode(Usual(), {.mode = 3});
  c.lengths = EqualLengths(1, 90, 20);
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
  c = Usual();
  c.lengths = EqualLengths(2, 9, 0);
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScore));
}

class PackedForward : public ::testing::TestWithParam<std::tuple<ForwardVersion, const char*>> {};

TEST_P(PackedForward, GivesTheBitsOfCpp) {
  const auto [version, softmax_layout] = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ForwardCase c = Packed();
    c.dtype = dtype;
    EXPECT_TRUE(SameAsCpp(c, version, softmax_layout));
    c.padding = {.inner = 3, .middle = 5, .outer = 7};
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 2}), version, softmax_layout));
    c.lengths = {{33, 0, 70}, {40, 7, 150}};
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 3}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 4, .pre = 20, .next = 11}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 6, .prefix = {11, 7, 100}}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 7, .pre = 200, .next = -9}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 8, .pre = 200, .next = 3}), version, softmax_layout));
    const reference::MaskRule band = {.mode = 0, .band = true, .pre = 20, .next = 9};
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, band, MaskForm::kPlane), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 1}, MaskForm::kPlane), version, softmax_layout));
    c.lengths = {{33, 70, 0, 0}, {40, 150, 0, 0}};
    EXPECT_TRUE(SameAsCpp(c, version, softmax_layout)) << "sums {33, 103, 0, 0}";
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 6, .prefix = {11, 100, 0, 0}}), version, softmax_layout));
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 7, .pre = 200, .next = -9}), version, softmax_layout));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PackedForward,
    ::testing::Values(std::tuple{ForwardVersion::kVarLen, ""}, std::tuple{ForwardVersion::kVarLenV2, ""},
                      std::tuple{ForwardVersion::kVarLenV3, ""}, std::tuple{ForwardVersion::kVarLenV4, ""},
                      std::tuple{ForwardVersion::kVarLenV4, "same_as_input"}, std::tuple{ForwardVersion::kVarLenV5, ""},
                      std::tuple{ForwardVersion::kVarLenV5, "same_as_input"}),
    [](const auto& param) { return std::string(Name(std::get<0>(param.param))) + std::get<1>(param.param); });

TEST(ForwardBits, RepeatedLastSumsAreEmptySequencesToo) {
  ForwardCase c = Packed();
  c.lengths = {{33, 70, 0, 0}, {40, 150, 0, 0}};
  ForwardFace zeros(c), repeated(c);
  repeated.parameters().q_lengths = repeated.handles().Array({33, 103, 103, 103});
  repeated.parameters().kv_lengths = repeated.handles().Array({40, 190, 190, 190});
  ASSERT_EQ(zeros.Run(ForwardVersion::kVarLenV5), ACL_SUCCESS) << aclGetRecentErrMsg();
  ASSERT_EQ(repeated.Run(ForwardVersion::kVarLenV5), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(SameBits(zeros.problem().Outputs(), repeated.problem().Outputs()));
}

TEST(ForwardBits, HeadsInTwoParts) {
  for (const auto version : {ForwardVersion::kVarLenV3, ForwardVersion::kVarLenV5}) {
    ForwardCase c = Packed();
    c.d_rope = 16;
    EXPECT_TRUE(SameAsCpp(c, version));
    c.dtype = DType::kBF16;
    EXPECT_TRUE(SameAsCpp(WithSparseMode(c, {.mode = 2}), version));
  }
}

// The cases have any sizes, strides, masks and biases. The interface refuses a call exactly when C++ refuses it.
TEST(ForwardBits, RandomCases) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    ForwardCase c = RandomForwardCase(seed);
    if (!AsOnTheDevice(&c)) continue;
    accepted += ForwardProblem(c).MakePlan(nullptr).ok() ? 1 : 0;
    const ForwardVersion version = c.packed() ? ForwardVersion::kVarLenV5 : ForwardVersion::kScoreV3;
    EXPECT_TRUE(SameAsCpp(c, version, seed % 2 == 0 && c.packed() ? "same_as_input" : "")) << "seed " << seed;
  }
  EXPECT_GT(accepted, 75) << "most of them must say something";
}

}  // namespace
}  // namespace fa::test
