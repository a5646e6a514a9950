// Tests the return codes of the first phase, one cause per test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>

#include "aclnn/calls/shaped_forward.h"

namespace fa::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ForwardCodes, SuccessLeavesAnExecutorAndASize) {
  const ShapedForward call;
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(ForwardVersion::kScore, call.p, &size, &executor), ACL_SUCCESS);
  EXPECT_GT(size, 0U);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACLNN_SUCCESS);
}

TEST(ForwardCodes, EveryRequiredNullIs161001AndNamed) {
  const struct {
    const char* name;
    const aclTensor* ForwardParameters::*member;
  } required[] = {{"query", &ForwardParameters::query},
                  {"key", &ForwardParameters::key},
                  {"value", &ForwardParameters::value},
                  {"softmaxMax", &ForwardParameters::softmax_max},
                  {"softmaxSum", &ForwardParameters::softmax_sum},
                  {"attentionOut", &ForwardParameters::out}};
  for (const auto& [name, member] : required) {
    for (const auto version : {ForwardVersion::kScore, ForwardVersion::kScoreV2, ForwardVersion::kScoreV3}) {
      ShapedForward call;
      call.p.*member = nullptr;
      EXPECT_EQ(call.Plan(version), ACLNN_ERR_PARAM_NULLPTR) << name << " " << Name(version);
      EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(name));
    }
  }
}

TEST(ForwardCodes, NullResultsOfTheFirstPhaseAre161001) {
  const ShapedForward call;
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(ForwardVersion::kScore, call.p, nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(GetWorkspaceSize(ForwardVersion::kScore, call.p, &size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

TEST(ForwardCodes, MixedTypesAre161002) {
  ShapedForward call;
  call.p.key = call.Tensor(ACL_FLOAT16, {1, 2, 1024, 16});
  ExpectInvalid(call, "key.dtype=f16, want f32");
}

TEST(ForwardCodes, TypesNoOperatorTakesAre161002) {
  ShapedForward call;
  call.p.query = call.Tensor(ACL_DOUBLE, {1, 2, 1024, 16});
  ExpectInvalid(call, "query: aclDataType 11");
}

TEST(ForwardCodes, WrongRankIs161002) {
  ShapedForward call;
  call.p.query = call.Tensor(ACL_FLOAT, {2, 1024, 16});
  ExpectInvalid(call, "query.shape=[2,1024,16], want 4 dimensions (BNSD)");
}

TEST(ForwardCodes, MoreThanEightDimensionsAre161002) {
  ShapedForward call;
  call.p.query = call.Tensor(ACL_FLOAT, {1, 1, 1, 1, 1, 1, 1, 1, 1, 16});
  ExpectInvalid(call, "query");
}

TEST(ForwardCodes, DifferentHeadSizesOfQueryAndKeyAre161002) {
  ShapedForward call;
  call.p.key = call.Tensor(ACL_FLOAT, {1, 2, 1024, 8});
  ExpectInvalid(call, "key.shape[3]=8, want 16");
}

TEST(ForwardCodes, SizesThatDisagreeAre161002AndNamed) {
  ShapedForward call;
  call.p.value = call.Tensor(ACL_FLOAT, {1, 2, 1000, 16});
  ExpectInvalid(call, "value.shape[2]=1000, want 1024");
}

TEST(ForwardCodes, OutputsThatDisagreeAre161002AndNamed) {
  ShapedForward call;
  call.p.out = call.Tensor(ACL_FLOAT, {1, 2, 1024, 8});
  ExpectInvalid(call, "attentionOut.shape[3]=8, want 16");
  call.p.out = call.Tensor(ACL_FLOAT, {1, 2, 1024, 16});
  call.p.softmax_max = call.Tensor(ACL_FLOAT, {1, 2, 1000, 8});
  ExpectInvalid(call, "softmaxMax.shape[2]=1000, want 1024");
  call.p.softmax_max = call.Tensor(ACL_FLOAT, {1, 2, 1024, 8});
  call.p.softmax_sum = call.Tensor(ACL_FLOAT16, {1, 2, 1024, 8});
  ExpectInvalid(call, "softmaxSum.dtype=f16, want f32");
}

TEST(ForwardCodes, HeadsThatDisagreeTellTheLayout) {
  ShapedForward call;
  call.p.layout = "BSND";
  ExpectInvalid(call, "headNum=2, want 1024 (query.shape[2], inputLayout BSND)");
}

TEST(ForwardCodes, FormatsThatOnlyNameDimensionsAreTaken) {
  ShapedForward call;
  const int64_t shape[] = {1, 2, 1024, 16};
  for (const aclFormat format : {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_HWCN,
                                 ACL_FORMAT_NDHWC, ACL_FORMAT_NCDHW, ACL_FORMAT_NC, ACL_FORMAT_NCL}) {
    aclTensor* tensor = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, format, shape, 4, &call);
    call.p.query = tensor;
    ExpectAccepted(call);
    aclDestroyTensor(tensor);
  }
}

TEST(ForwardCodes, FractalFormatsAre161002) {
  ShapedForward call;
  const int64_t shape[] = {1, 2, 1024, 16};
  aclTensor* fractal = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_FRACTAL_NZ, shape, 4, &call);
  call.p.query = fractal;
  ExpectInvalid(call, "query: aclFormat 29");
  aclDestroyTensor(fractal);
}

TEST(ForwardCodes, NegativeStridesAndOffsetsAre161002) {
  ShapedForward call;
  const int64_t shape[] = {1, 2, 1024, 16};
  const int64_t backwards[] = {32768, 16384, -16, 1};
  aclTensor* tensor = aclCreateTensor(shape, 4, ACL_FLOAT, backwards, 0, ACL_FORMAT_ND, shape, 4, &call);
  call.p.query = tensor;
  ExpectInvalid(call, "query.stride[2]=-16");
  aclDestroyTensor(tensor);
  tensor = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, -1, ACL_FORMAT_ND, shape, 4, &call);
  call.p.query = tensor;
  ExpectInvalid(call, "query: offset -1");
  aclDestroyTensor(tensor);
}

TEST(ForwardCodes, PackedLayoutInTheFixedOperatorAndTheReverseAre161002) {
  const ShapedForward fixed;
  EXPECT_EQ(fixed.Plan(ForwardVersion::kVarLen), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("inputLayout=\"BNSD\", want \"TND\""));
  const ShapedForward packed({}, "TND");
  EXPECT_EQ(packed.Plan(ForwardVersion::kScore), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("inputLayout=\"TND\""));
}

TEST(ForwardCodes, MissingLengthsAre161002) {
  ShapedForward call({}, "TND");
  call.p.q_lengths = nullptr;
  ExpectInvalid(call, "actualSeqQLen: missing");
  call.SetLengths({1024}, {1024});
  call.p.kv_lengths = nullptr;
  ExpectInvalid(call, "actualSeqKvLen: missing");
}

TEST(ForwardCodes, LengthsThatDecreaseOrDisagreeAre161002) {
  ShapedForward call({}, "TND");
  call.SetLengths({5, -2}, {5, 1});
  ExpectInvalid(call, "actualSeqQLen[1]=3, want >= 5");
  call.p.q_lengths = call.p.kv_lengths = call.Array({5, 0, 7, 0});
  ExpectInvalid(call, "actualSeqQLen[1]=0, want >= 5");
  call.p.q_lengths = call.p.kv_lengths = call.Array({0, 5, 7, 0, 0});
  ExpectAccepted(call);
  call.p.q_lengths = call.p.kv_lengths = call.Array({0, 0});
  ExpectAccepted(call);
  call.SetLengths({5, 2}, {5});
  ExpectInvalid(call, "actualSeqKvLen has 1 entries, want 2 (actualSeqQLen)");
  call.SetLengths({1025}, {5});
  ExpectInvalid(call, "actualSeqQLen[0]=1025, want <= 1024 (query.shape[0])");
}

TEST(ForwardCodes, SlopesOfAnotherTypeOrMissingAre161002) {
  ShapedForward call;
  call.p.pse_type = 2;
  ExpectInvalid(call, "realShift: missing, want slopes (pseType 2)");
  call.p.pse = call.Tensor(ACL_FLOAT16, {2});
  ExpectInvalid(call, "realShift.dtype=f16, want f32");
  call.p.pse_type = 4;
  ExpectInvalid(call, "pseType=4, want 0..3");
  call.p.pse_type = -1;
  ExpectInvalid(call, "pseType=-1, want 0..3");
}

TEST(ForwardCodes, UnknownSoftmaxLayoutsAre161002) {
  ShapedForward call({}, "TND");
  call.p.softmax_layout = "TND";
  ExpectInvalid(call, "softmaxOutLayout=\"TND\"");
}

TEST(ForwardCodes, StatisticsBySequenceHaveTheirShape) {
  ShapedForward call({}, "TND");
  call.p.softmax_max = call.Tensor(ACL_FLOAT, {1024, 2});
  ExpectInvalid(call, "softmaxMax.shape");
  call.p.softmax_max = call.Tensor(ACL_FLOAT, {1024, 2, 4});
  ExpectInvalid(call, "softmaxMax.shape[2]=4, want 8");
  call.p.softmax_max = call.Tensor(ACL_INT32, {1024, 2, 8});
  ExpectInvalid(call, "softmaxMax.dtype=i32, want f32");
}

TEST(ForwardCodes, ScalesThatAreNotFiniteAre161002) {
  ShapedForward call;
  call.p.scale = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid(call, "scaleValue=nan");
  call.p.scale = 1e300;
  ExpectInvalid(call, "scaleValue=inf");
}

TEST(ForwardCodes, MasksOfAnotherShapeOrTypeAre161002) {
  ShapedForward call;
  call.SetMode(1);
  call.p.atten_mask = call.Tensor(ACL_BOOL, {1024, 1000});
  ExpectInvalid(call, "attenMask.shape[1]=1000, want 1024");
  call.p.atten_mask = call.Tensor(ACL_FLOAT, {1024, 1024});
  ExpectInvalid(call, "attenMask.dtype=f32");
  call.SetMode(3);
  call.p.atten_mask = call.Tensor(ACL_BOOL, {1024, 1024});
  ExpectInvalid(call, "attenMask.shape=[1024,1024], want [2048,2048]");
  call.SetMode(6);
  call.p.prefix = call.Array({5});
  call.p.atten_mask = call.Tensor(ACL_BOOL, {2048, 2048});
  ExpectInvalid(call, "want [3072,2048]");
}

TEST(ForwardCodes, DropMasksThatAreTooShortAre161002) {
  ShapedForward call;
  call.p.keep_prob = 0.5;
  ExpectInvalid(call, "keepProb=0.5, want dropMask");
  EXPECT_THAT(aclGetRecentErrMsg(), EndsWith("dropMask")) << "the device has no dropout by seed";
  call.p.drop_mask = call.Tensor(ACL_UINT8, {2 * 1024 * 1024 / 8 - 1});
  ExpectInvalid(call, "dropMask.shape[0]=262143");
  call.p.drop_mask = call.Tensor(ACL_UINT8, {2, 1024, 128});
  ExpectAccepted(call);
}

TEST(ForwardCodes, DestroyedHandlesAre161002) {
  ShapedForward call;
  const int64_t shape[] = {1, 2, 1024, 16};
  aclTensor* tensor = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 4, &call);
  call.p.query = tensor;
  ASSERT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  ExpectInvalid(call, "query: not created, or destroyed");
}

TEST(ForwardErrors, AreKeptForTheirThread) {
  ShapedForward call;
  call.p.heads = 0;
  EXPECT_EQ(call.Plan(), ACLNN_ERR_PARAM_INVALID);
  std::string other = "unset";
  std::thread([&] { other = aclGetRecentErrMsg(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("headNum=0"));
}

}  // namespace
}  // namespace fa::test
