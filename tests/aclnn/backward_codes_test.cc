// Tests the calls that the backward's first phase refuses, and the calls for which the device does nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnn/calls/backward_face.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

BackwardCase Small() {
  BackwardCase c;
  c.forward.heads = 4;
  c.forward.heads_kv = 2;
  c.forward.lengths = EqualLengths(2, 9, 17);
  return c;
}

BackwardCase SmallPacked() {
  BackwardCase c = Small();
  c.forward.layout = Layout::kTND;
  return c;
}

aclnnStatus Plan(BackwardFace& face, BackwardVersion version) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status = GetWorkspaceSize(version, face.parameters(), &size, &executor);
  if (status == ACLNN_SUCCESS) aclDestroyAclOpExecutor(executor);
  return status;
}

void ExpectInvalid(BackwardFace& face, BackwardVersion version, const std::string& text) {
  EXPECT_EQ(Plan(face, version), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
}

TEST(BackwardCodes, EveryRequiredNullIs161001AndNamed) {
  using P = BackwardParameters;
  const struct {
    const char* name;
    const aclTensor* P::*member;
  } required[] = {{"query", &P::query},
                  {"keyIn", &P::key},
                  {"value", &P::value},
                  {"dy", &P::dy},
                  {"softmaxMax", &P::softmax_max},
                  {"softmaxSum", &P::softmax_sum},
                  {"attentionIn", &P::attention_in},
                  {"dq", &P::dq},
                  {"dk", &P::dk},
                  {"dv", &P::dv}};
  BackwardFace face(Small());
  for (const auto& [name, member] : required) {
    const aclTensor* const given = face.parameters().*member;
    face.parameters().*member = nullptr;
    for (const auto version : {BackwardVersion::kGrad, BackwardVersion::kGradV2, BackwardVersion::kGradV3}) {
      EXPECT_EQ(Plan(face, version), ACLNN_ERR_PARAM_NULLPTR) << name << " " << Name(version);
      EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(name));
    }
    face.parameters().*member = given;
  }
  EXPECT_EQ(Plan(face, BackwardVersion::kGrad), ACLNN_SUCCESS) << aclGetRecentErrMsg();
}

TEST(BackwardCodes, ShapesAndTypesThatDisagreeAreNamedAsTheInterfaceDoes) {
  BackwardFace face(Small());
  const BackwardParameters right = face.parameters();
  float some[8] = {};
  const auto tensor = [&](const std::vector<int64_t>& shape, aclDataType dtype = ACL_FLOAT) {
    return face.handles().Tensor(some, dtype, shape);
  };
  face.parameters().dy = tensor({2, 4, 9, 8});
  ExpectInvalid(face, BackwardVersion::kGrad, "dy.shape[3]=8, want 16 (attentionIn.shape[3])");
  face.parameters() = right;
  face.parameters().attention_in = tensor({2, 4, 8, 16});
  ExpectInvalid(face, BackwardVersion::kGrad, "attentionIn.shape[2]=8, want 9");
  face.parameters() = right;
  face.parameters().dk = tensor({2, 2, 17, 16}, ACL_FLOAT16);
  ExpectInvalid(face, BackwardVersion::kGrad, "dk.dtype=f16, want f32 (keyIn.dtype)");
  face.parameters() = right;
  face.parameters().softmax_sum = tensor({2, 4, 9, 4});
  ExpectInvalid(face, BackwardVersion::kGrad, "softmaxSum.shape[3]=4, want 8");
}

TEST(BackwardCodes, AttributesAreCheckedAsInTheForward) {
  BackwardFace face(Small());
  const BackwardParameters right = face.parameters();
  face.parameters().layout = "BND";
  ExpectInvalid(face, BackwardVersion::kGrad, "inputLayout=\"BND\"");
  face.parameters() = right;
  face.parameters().heads = 5;
  ExpectInvalid(face, BackwardVersion::kGrad, "headNum=5");
  face.parameters() = right;
  face.parameters().keep_prob = 1.2;
  ExpectInvalid(face, BackwardVersion::kGrad, "keepProb=1.2");
  face.parameters().keep_prob = 0.5;
  ExpectInvalid(face, BackwardVersion::kGrad, "want dropMask");
  face.parameters() = right;
  face.parameters().sparse_mode = 9;
  ExpectInvalid(face, BackwardVersion::kGrad, "sparseMode=9");
  face.parameters() = right;
  face.parameters().pse_type = 2;
  ExpectInvalid(face, BackwardVersion::kGradV2, "pseShift: missing, want slopes (pseType 2)");
}

TEST(BackwardCodes, PackedSequencesWantLengthsAndTheirLayout) {
  BackwardFace face(SmallPacked());
  const BackwardParameters right = face.parameters();
  face.parameters().q_lengths = nullptr;
  ExpectInvalid(face, BackwardVersion::kUnpadding, "actualSeqQLen: missing");
  face.parameters() = right;
  face.parameters().layout = "BSND";
  ExpectInvalid(face, BackwardVersion::kUnpadding, "inputLayout=\"BSND\", want \"TND\"");
  face.parameters() = right;
  face.parameters().softmax_layout = "BNSD";
  ExpectInvalid(face, BackwardVersion::kUnpaddingV4, "softmaxInLayout=\"BNSD\"");
  ExpectInvalid(face, BackwardVersion::kUnpaddingV5, "softmaxInLayout=\"BNSD\"");
}

TEST(BackwardCodes, PartsOfHeadsComeTogetherWithTheirGradients) {
  BackwardCase c = SmallPacked();
  c.forward.d_rope = 8;
  BackwardFace face(c);
  const BackwardParameters right = face.parameters();
  face.parameters().key_rope = nullptr;
  ExpectInvalid(face, BackwardVersion::kUnpaddingV3, "keyInRope: missing (queryRope is given)");
  face.parameters() = right;
  face.parameters().dq_rope = nullptr;
  ExpectInvalid(face, BackwardVersion::kUnpaddingV3, "dqRope: missing");
}

TEST(BackwardCodes, CompressedBiasHasNoGradient) {
  BackwardCase c = Small();
  c.forward.lengths = EqualLengths(1, 1100, 1100);
  c.forward.heads = c.forward.heads_kv = 1;
  c.forward.d = c.forward.dv = 2;
  c.forward.pse = PseForm::kCompressed;
  c.forward.pse_type = reference::PseType::kAddThenScale;
  c.forward.sparse_mode = true;
  c.forward.mask.mode = 2;
  BackwardFace face(c);
  EXPECT_EQ(Plan(face, BackwardVersion::kGrad), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  face.parameters().dpse = face.parameters().pse;
  ExpectInvalid(face, BackwardVersion::kGrad, "dpse: not available for the compressed 1024-row form");
}

TEST(BackwardCodes, ReservedResultsMayBeNullEmptyOrWithoutSource) {
  BackwardFace face(Small());
  float some[4] = {-7, -7, -7, -7};
  face.parameters().dpse = face.handles().Tensor(some, ACL_FLOAT, {0});
  face.parameters().dsink = face.handles().Tensor(some, ACL_FLOAT, {0});
  EXPECT_EQ(face.Run(BackwardVersion::kGradV3), ACL_SUCCESS) << aclGetRecentErrMsg();
  face.parameters().dpse = face.handles().Tensor(some, ACL_FLOAT, {4});
  face.parameters().dsink = face.handles().Tensor(some, ACL_FLOAT, {4});
  EXPECT_EQ(face.Run(BackwardVersion::kGradV3), ACL_SUCCESS) << aclGetRecentErrMsg();
  for (const float value : some) EXPECT_EQ(value, -7) << "no bias and no sink: nothing to write";
}

TEST(BackwardCodes, NothingToWriteIsSuccessWithoutAWorkspace) {
  BackwardCase c = Small();
  c.forward.lengths = {{}, {}};
  BackwardFace face(c);
  uint64_t size = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(GetWorkspaceSize(BackwardVersion::kGrad, face.parameters(), &size, &executor), ACLNN_SUCCESS)
      << aclGetRecentErrMsg();
  EXPECT_EQ(size, 0U);
  ASSERT_EQ(Execute(BackwardVersion::kGrad, nullptr, 0, executor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
}

}  // namespace
}  // namespace fa::test
