// Descriptors may have strides and offsets that the C++ operators do not take. Such inputs are packed into the
// workspace, and such outputs are scattered from the workspace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "aclnn/calls/backward_face.h"
#include "aclnn/calls/forward_face.h"
#include "aclnn/calls/spread.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"

namespace fa::test {
namespace {

ForwardCase Small() {
  ForwardCase c;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = 12;
  c.dv = 10;
  c.lengths = EqualLengths(2, 9, 17);
  c.wants_lse = false;
  return c;
}

TEST(Strides, ForwardOfTensorsWithGapsInTheirRows) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH}) {
    ForwardCase c = Small();
    c.layout = layout;
    c.pse = PseForm::kFull;
    c.pse_type = reference::PseType::kAddThenScale;
    const ForwardProblem cpp(c);
    ASSERT_TRUE(cpp.Run(nullptr).ok());
    ForwardFace face(c);
    const AttentionArgs args = face.problem().args();
    const Spread query(args.q), key(args.k), value(args.v), pse(args.pse), out(args.out);
    face.parameters().query = query.tensor();
    face.parameters().key = key.tensor();
    face.parameters().value = value.tensor();
    face.parameters().pse = pse.tensor();
    face.parameters().out = out.tensor();
    ASSERT_EQ(face.Run(ForwardVersion::kScoreV2), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(out.Values(), DenseValues(cpp.args().out));
    EXPECT_TRUE(face.max().Holds(cpp.Outputs().max));
  }
}

TEST(Strides, BackwardOfTensorsWithGapsInTheirRows) {
  BackwardCase c;
  c.forward = Small();
  c.forward.layout = Layout::kTND;
  c.forward.lengths = {{4, 9}, {17, 11}};
  c.forward.pse = PseForm::kFull;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  const BackwardProblem cpp(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  BackwardFace face(c);
  const AttentionGradArgs args = face.problem().args();
  const Spread query(args.q), dy(args.d_out), attention(args.out), pse(args.pse);
  const Spread dq(args.dq), dk(args.dk), dv(args.dv), dpse(args.dpse);
  face.parameters().query = query.tensor();
  face.parameters().dy = dy.tensor();
  face.parameters().attention_in = attention.tensor();
  face.parameters().pse = pse.tensor();
  face.parameters().dq = dq.tensor();
  face.parameters().dk = dk.tensor();
  face.parameters().dv = dv.tensor();
  face.parameters().dpse = dpse.tensor();
  ASSERT_EQ(face.Run(BackwardVersion::kUnpaddingV2), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(dq.Values(), DenseValues(cpp.args().dq));
  EXPECT_EQ(dk.Values(), DenseValues(cpp.args().dk));
  EXPECT_EQ(dv.Values(), DenseValues(cpp.args().dv));
  EXPECT_EQ(dpse.Values(), DenseValues(cpp.args().dpse));
}

TEST(Strides, StatisticsInBlocksWithGaps) {
  ForwardCase c = Small();
  c.layout = Layout::kTND;
  c.lengths = {{4, 9}, {17, 11}};
  const ForwardProblem cpp(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  ForwardFace face(c);
  const std::vector<float> zeros(static_cast<size_t>(13 * c.heads * 8));
  const Spread max({zeros.data(), DType::kF32, {13, c.heads, 8}, {}});
  face.parameters().softmax_max = max.tensor();
  ASSERT_EQ(face.Run(ForwardVersion::kVarLen), ACL_SUCCESS) << aclGetRecentErrMsg();
  std::vector<float> want;
  for (const double value : cpp.Outputs().max) want.insert(want.end(), 8, static_cast<float>(value));
  EXPECT_EQ(max.Values(), want);
}

TEST(Strides, BiasOfPackedSequencesInAnyShape) {
  ForwardCase c = Small();
  c.layout = Layout::kTND;
  c.lengths = {{4, 9}, {17, 11}};
  c.pse = PseForm::kRow;
  c.pse_type = reference::PseType::kAddThenScale;
  const ForwardProblem cpp(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  ForwardFace face(c);
  void* bias = const_cast<void*>(face.problem().args().pse.data);
  face.parameters().pse = face.handles().Tensor(bias, ACL_FLOAT, {1, c.heads, 1, 28});
  ASSERT_EQ(face.Run(ForwardVersion::kVarLen), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(face.max().Holds(cpp.Outputs().max));
}

TEST(Strides, DropMaskWithGaps) {
  ForwardCase c = Small();
  c.dropout = DropoutForm::kMask;
  c.keep_prob = 0.5F;
  const ForwardProblem cpp(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  ForwardFace face(c);
  const TensorView dense = face.problem().args().drop_mask;
  std::vector<uint8_t> spread(static_cast<size_t>(dense.shape[0]) * 2);
  for (int64_t x = 0; x < dense.shape[0]; ++x) {
    spread[static_cast<size_t>(2 * x)] = static_cast<const uint8_t*>(dense.data)[x];
  }
  face.parameters().drop_mask = face.handles().Tensor({spread.data(), DType::kU8, dense.shape, {2}});
  ASSERT_EQ(face.Run(ForwardVersion::kScore), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(face.max().Holds(cpp.Outputs().max));
  EXPECT_EQ(cpp.Outputs().out, face.problem().Outputs().out);
}

TEST(Strides, BroadcastInputsAreTakenAsTheyLie) {
  ForwardCase c = Small();
  const ForwardProblem cpp(c);
  AttentionArgs args = cpp.args();
  args.k.stride = {0, 0, args.k.shape[3], 1};
  ASSERT_TRUE(FlashAttention(args, cpp.options()).ok());
  ForwardFace face(c);
  TensorView key = face.problem().args().k;
  key.stride = args.k.stride;
  face.parameters().key = face.handles().Tensor(key);
  ASSERT_EQ(face.Run(ForwardVersion::kScore), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(cpp.Outputs().out, face.problem().Outputs().out);
}

TEST(Strides, OutputsWhoseElementsCoincideAreRefused) {
  ForwardFace face(Small());
  TensorView out = face.problem().args().out;
  for (const Dims& stride : {Dims{0, 90, 10, 1}, Dims{360, 90, 10, 2}, Dims{360, 90, 10, 0}}) {
    out.stride = stride;
    face.parameters().out = face.handles().Tensor(out);
    EXPECT_EQ(face.Run(ForwardVersion::kScore), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr("attentionOut.stride"));
  }
}

TEST(Strides, AnOutputThatIsAnInputIsFoundOnTheStream) {
  ForwardCase c = Small();
  c.heads_kv = c.heads;
  c.dv = c.d;
  ForwardFace face(c);
  face.parameters().out = face.parameters().query;
  EXPECT_EQ(face.Run(ForwardVersion::kScore), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr("attentionOut: shares memory with query"));
}

}  // namespace
}  // namespace fa::test
