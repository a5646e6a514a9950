// Tests the calls that the device refuses, one per test. Also tests calls that exceed limits of the device, which this
// library allows.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "aclnn/calls/shaped_forward.h"

namespace fa::test {
namespace {

TEST(ForwardRefuses, LayoutBnd) {
  ShapedForward call;
  call.p.layout = "BND";
  ExpectInvalid(call, "inputLayout=\"BND\"");
  call.p.layout = "bnsd";
  ExpectInvalid(call, "inputLayout=\"bnsd\"");
}

TEST(ForwardRefuses, HeadNumZeroFiveOrThousand) {
  for (const int64_t heads : {int64_t{0}, int64_t{-1}, int64_t{5}, int64_t{1000}}) {
    ShapedForward call;
    call.p.heads = heads;
    ExpectInvalid(call, "headNum=" + std::to_string(heads));
    call.p.layout = "BSH";
    call.p.query = call.p.key = call.p.value = call.p.out = call.Tensor(ACL_FLOAT, {1, 1024, 32});
    EXPECT_EQ(call.Plan(), ACLNN_ERR_PARAM_INVALID) << heads;
  }
}

TEST(ForwardRefuses, KeepProbAboveOneOrNotAboveZero) {
  for (const double keep_prob : {1.2, 0.0, -0.5, 1e-60}) {
    ShapedForward call;
    call.p.keep_prob = keep_prob;
    ExpectInvalid(call, "keepProb=");
  }
}

TEST(ForwardRefuses, BothTokensNegative) {
  for (const int64_t mode : {0, 4}) {
    ShapedForward call;
    call.SetMode(mode, -512, -512);
    ExpectInvalid(call, "preTokens=-512");
  }
}

TEST(ForwardRefuses, PreMinus1024Next512) {
  ShapedForward call;
  call.SetMode(0, -1024, 512);
  ExpectInvalid(call, "preTokens=-1024");
}

TEST(ForwardRefuses, ModeFourPre512NextMinus1024) {
  ShapedForward call;
  call.SetMode(4, 512, -1024);
  ExpectInvalid(call, "nextTokens=-1024");
}

TEST(ForwardRefuses, ModesThatDoNotExist) {
  for (const int64_t mode : {int64_t{99}, int64_t{100}, int64_t{-1}}) {
    ShapedForward call;
    call.SetMode(mode);
    ExpectInvalid(call, "sparseMode=" + std::to_string(mode));
    call.p.atten_mask = nullptr;
    ExpectInvalid(call, "sparseMode=" + std::to_string(mode));
  }
}

TEST(ForwardRefuses, ModesSevenAndEightOutsideTnd) {
  for (const int64_t mode : {7, 8}) {
    ShapedForward call;
    call.SetMode(mode, 1024, 0);
    ExpectInvalid(call, "sparseMode=" + std::to_string(mode));
  }
}

TEST(ForwardRefuses, TndModeFive) {
  ShapedForward call({}, "TND");
  call.SetMode(5);
  call.p.atten_mask = call.Tensor(ACL_BOOL, {1024, 1024});
  call.p.prefix = call.Array({5});
  ExpectInvalid(call, "sparseMode=5");
}

TEST(ForwardRefuses, TndModeZeroNextMinus512) {
  ShapedForward call({}, "TND");
  call.SetMode(0, 1024, -512);
  ExpectInvalid(call, "nextTokens=-512");
}

TEST(ForwardRefuses, TndModeZeroPre512OfTwiceAsManyQueries) {
  ShapedForward call({.sq = 2048, .sk = 1024}, "TND");
  call.SetMode(0, 512, 1024);
  ExpectInvalid(call, "preTokens=512");
}

TEST(ForwardRefuses, TndModeThreeOfMoreQueriesThanKeys) {
  ShapedForward call({.sq = 2048, .sk = 1024}, "TND");
  call.SetMode(3);
  ExpectInvalid(call, "actualSeqKvLen[0]");
}

TEST(ForwardRefuses, TndModeFourPreNegative) {
  ShapedForward call({}, "TND");
  call.SetMode(4, -5, 100);
  ExpectInvalid(call, "preTokens=-5");
}

TEST(ForwardRefuses, ModeSevenPreBelowTheKeysOrNextAboveZero) {
  ShapedForward call({}, "TND");
  call.SetMode(7, 1000, 0);
  ExpectInvalid(call, "preTokens=1000");
  call.SetMode(7, 1024, 1);
  ExpectInvalid(call, "nextTokens=1");
  call.SetMode(7, 1024, 0);
  ExpectAccepted(call);
}

TEST(ForwardRefuses, ModeEightNextMinus2048) {
  ShapedForward call({}, "TND");
  call.SetMode(8, 2048, -2048);
  ExpectInvalid(call, "nextTokens=-2048");
}

TEST(ForwardRefuses, PrefixBelowTheDifferenceOfLengths) {
  ShapedForward call({.batch = 3, .sq = 1024, .sk = 2048});
  call.SetMode(6);
  call.p.prefix = call.Array({1536, 128, 1536});
  ExpectInvalid(call, "prefix[1]=128");
}

TEST(ForwardRefuses, PrefixOfAnotherCountOrMissing) {
  ShapedForward call({.batch = 3, .sq = 1024, .sk = 2048});
  for (const int64_t mode : {5, 6}) {
    call.SetMode(mode);
    call.p.prefix = call.Array({1536, 1536});
    ExpectInvalid(call, "prefix has 2 entries, want 3");
    call.p.prefix = nullptr;
    ExpectInvalid(call, "prefix: missing, want 3 entries (query.shape[0])");
  }
}

TEST(ForwardRefuses, ModeFivePlaneMaskOfABatch) {
  ShapedForward call({.batch = 2});
  call.SetMode(5);
  call.p.prefix = call.Array({100, 100});
  ExpectAccepted(call);
  call.p.atten_mask = call.Tensor(ACL_BOOL, {1024, 1024});
  ExpectInvalid(call, "attenMask.shape=[1024,1024]");
}

TEST(ForwardRefuses, CompressedBiasWithoutCausalMaskOrOfShortSequences) {
  ShapedForward call({.sq = 2048, .sk = 2048});
  call.p.pse = call.Tensor(ACL_FLOAT, {1, 2, 1024, 2048});
  ExpectInvalid(call, "realShift: the 1024-row form wants a causal mask");
  call.SetMode(2);
  ExpectAccepted(call);
  ShapedForward small({.sq = 512, .sk = 512});
  small.SetMode(2);
  small.p.pse = small.Tensor(ACL_FLOAT, {1, 2, 1024, 512});
  ExpectInvalid(small, "realShift.shape[2]=1024");
}

TEST(ForwardRefuses, ModeSevenWithSlopes) {
  ShapedForward call({}, "TND");
  call.SetMode(7, 1024, 0);
  call.p.pse_type = 2;
  call.p.pse = call.Tensor(ACL_FLOAT, {2});
  ExpectInvalid(call, "pseType=2");
}

TEST(ForwardAccepts, SlopesOfUnequalLengths) {
  ShapedForward call({.sq = 100, .sk = 300});
  call.p.pse_type = 3;
  call.p.pse = call.Tensor(ACL_FLOAT, {2});
  ExpectAccepted(call);
}

TEST(ForwardAccepts, HeadSizeOf896AndValuesLargerThanKeys) {
  ExpectAccepted(ShapedForward({.d = 896, .dv = 1000}));
  ShapedForward call({.d = 1025});
  ExpectInvalid(call, "query.shape[3]=1025, want a head size of 1..1024");
}

TEST(ForwardAccepts, MoreHeadsThan256) {
  ExpectAccepted(ShapedForward({.heads = 300, .heads_kv = 100, .sq = 64, .sk = 64}));
}

TEST(ForwardAccepts, AnySparseModeWithoutAMask) {
  for (int64_t mode = 0; mode <= 8; ++mode) {
    ShapedForward call;
    call.p.sparse_mode = mode;
    call.p.pre = call.p.next = -1000;
    ExpectAccepted(call);
  }
}

TEST(ForwardAccepts, UnlimitedTokensOfEverySpelling) {
  for (const int64_t tokens : {int64_t{2147483647}, int64_t{214748647}, std::numeric_limits<int64_t>::max()}) {
    ShapedForward call;
    call.SetMode(4, tokens, 0);
    ExpectAccepted(call);
  }
}

TEST(ForwardAccepts, UnusedOptionalArgumentsOfAnyKind) {
  ShapedForward call;
  call.p.prefix = call.Array({0});
  call.p.q_start = call.Array({7});
  call.p.kv_start = call.Array({});
  call.p.padding_mask = call.Tensor(ACL_DOUBLE, {0});
  call.p.softmax_out = call.Tensor(ACL_FLOAT16, {0});
  call.p.drop_mask = call.Tensor(ACL_UINT8, {0});
  call.p.atten_mask = call.Tensor(ACL_BOOL, {0});
  call.p.pse = call.Tensor(ACL_FLOAT, {0});
  call.p.sink = call.Tensor(ACL_FLOAT, {0});
  call.p.inner_precise = 2;
  ExpectAccepted(call);
}

TEST(ForwardAccepts, EmptyTensors) {
  const ShapedForward nothing({.batch = 0});
  uint64_t size = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(GetWorkspaceSize(ForwardVersion::kScore, nothing.p, &size, &executor), ACLNN_SUCCESS);
  EXPECT_EQ(size, 0U);
  ASSERT_EQ(Execute(ForwardVersion::kScore, nullptr, 0, executor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  ExpectAccepted(ShapedForward({.sk = 0}));
  ExpectAccepted(ShapedForward({.sq = 0}));
}

}  // namespace
}  // namespace fa::test
