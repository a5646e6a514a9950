// Tests aclnnFlashAttentionScoreV4 and its gradient, which serve every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/calls/backward_face.h"
#include "aclnn/calls/forward_face.h"
#include "aclnn/calls/shaped_forward.h"
#include "support/cases/random_backward_case.h"
#include "support/compare/compare.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

ForwardCase WithSeed() {
  ForwardCase c;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = c.dv = 24;
  c.lengths = {{33, 20}, {40, 40}};
  c.layout = Layout::kTND;
  c.dropout = DropoutForm::kSeed;
  c.keep_prob = 0.75F;
  return c;
}

TEST(Version4, DropoutDrawsItsBitsFromTheSeed) {
  ForwardCase c = WithSeed();
  EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV4));
  EXPECT_TRUE(SameAsCpp(BackwardCase{.forward = c}, BackwardVersion::kGradV4));
  c.seed += 5;
  ForwardFace other(c), first(WithSeed());
  first.parameters().seed = other.parameters().seed;
  first.parameters().offset = other.parameters().offset;
  const ForwardProblem unchanged(WithSeed());
  ASSERT_TRUE(unchanged.Run(nullptr).ok());
  ASSERT_EQ(first.Run(ForwardVersion::kScoreV4), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_FALSE(SameBits(first.problem().Outputs(), unchanged.Outputs())) << "another seed drops other pairs";
}

TEST(Version4, PartsOfHeadsGoWithEveryLayout) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    ForwardCase c = WithSeed();
    c.layout = layout;
    if (layout != Layout::kTND) c.lengths = {{33, 33}, {40, 40}};
    c.d_rope = 8;
    EXPECT_TRUE(SameAsCpp(c, ForwardVersion::kScoreV4)) << Name(layout);
    EXPECT_TRUE(SameAsCpp(BackwardCase{.forward = c}, BackwardVersion::kGradV4)) << Name(layout);
  }
}

TEST(Version4, RandomCasesGiveTheBitsOfCpp) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    BackwardCase c = RandomBackwardCase(seed);
    if (!AsOnTheDevice(&c.forward, /*version4=*/true)) continue;
    c.optional_gradients = true;
    accepted += BackwardProblem(c).MakePlan(nullptr).ok() ? 1 : 0;
    const std::string layout = seed % 2 == 0 && c.forward.packed() ? "same_as_input" : "";
    EXPECT_TRUE(SameAsCpp(c.forward, ForwardVersion::kScoreV4, layout)) << "seed " << seed;
    EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV4, layout)) << "seed " << seed;
  }
  EXPECT_GT(accepted, 60) << "most of them must say something";
}

TEST(Version4, ErrorsCallTheRopePartOfKeysByItsName) {
  BackwardCase c{.forward = WithSeed()};
  c.forward.d_rope = 8;
  BackwardFace face(c);
  std::vector<float> some(64);
  face.parameters().key_rope = face.handles().Tensor(some.data(), ACL_FLOAT, {8, 1, 8});
  EXPECT_EQ(face.Run(BackwardVersion::kGradV4), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("keyRope.shape"));
  EXPECT_EQ(face.Run(BackwardVersion::kUnpaddingV5), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("keyInRope.shape"));
}

void ExpectRefused(const ShapedForward& call, const std::string& text) {
  EXPECT_EQ(call.Plan(ForwardVersion::kScoreV4), ACLNN_ERR_PARAM_INVALID) << text;
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
}

TEST(Version4, LengthsAreGivenIfAndOnlyIfTheLayoutIsTnd) {
  ShapedForward call;
  EXPECT_EQ(call.Plan(ForwardVersion::kScoreV4), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  call.p.q_lengths = call.Array({1024});
  ExpectRefused(call, "actualSeqQLen: given, want none (inputLayout BNSD)");
  ShapedForward packed({}, "TND");
  packed.p.q_lengths = nullptr;
  ExpectRefused(packed, "actualSeqQLen: missing, want inclusive prefix sums (inputLayout TND)");
  packed.SetLengths({1000, 24}, {1024, 0});
  EXPECT_EQ(packed.Plan(ForwardVersion::kScoreV4), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  packed.p.layout = "TNDX";
  ExpectRefused(packed, "inputLayout=\"TNDX\", want \"BNSD\", \"BSND\", \"BSH\", \"SBH\" or \"TND\"");
}

TEST(Version4, QuantisedTensorsAreRefusedByName) {
  const char* const names[] = {"dScaleQ", "dScaleK", "dScaleV", "dScaleDy", "dScaleO"};
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string text = names[i] + std::string(": quantised tensors are not served");
    BackwardFace backward(BackwardCase{.forward = WithSeed()});
    float scale = 1;
    backward.parameters().scales[i] = backward.handles().Tensor(&scale, ACL_FLOAT, {1});
    EXPECT_EQ(backward.Run(BackwardVersion::kGradV4), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
    if (i >= 3) continue;  // the forward has no such parameter
    ShapedForward forward;
    forward.p.scales[i] = forward.Tensor(ACL_FLOAT, {1});
    ExpectRefused(forward, text);
  }
  ShapedForward call;
  call.p.out_dtype = 1;
  ExpectRefused(call, "outDtype=1, want 0: quantised tensors are not served");
}

TEST(Version4, SoftmaxLayoutsAreCheckedInEveryLayout) {
  ShapedForward call;
  call.p.softmax_layout = "BNSD";
  ExpectRefused(call, "softmaxOutLayout=\"BNSD\", want \"\" or \"same_as_input\"");
}

TEST(Version4, SinksComeWithTheirGradient) {
  BackwardCase c{.forward = WithSeed()};
  c.forward.sink = true;
  EXPECT_TRUE(SameAsCpp(c, BackwardVersion::kGradV4));
  BackwardFace face(c);
  face.parameters().dsink = nullptr;
  EXPECT_EQ(face.Run(BackwardVersion::kGradV4), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("dsink: missing, want it with sinkIn"));
  BackwardFace without(c);
  without.parameters().sink = nullptr;
  EXPECT_EQ(without.Run(BackwardVersion::kGradV4), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("dsink: given, want none without sinkIn"));
}

}  // namespace
}  // namespace fa::test
