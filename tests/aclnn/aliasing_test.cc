// The outputs of a call may not share memory with the call's other tensors, however these are passed to the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "aclnn/calls/operator_call.h"
#include "aclnn/calls/shaped_forward.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;
using Tensor = OperatorCall::Tensor;

class Aliasing : public ::testing::TestWithParam<std::tuple<Family, Spacing>> {};

// Returns the address of element x of a tensor whose elements lie as `spacing` says.
std::byte* At(Tensor& tensor, int64_t x, Spacing spacing) {
  const int64_t at = spacing == Spacing::kSpread ? 5 + 3 * x : x;
  return static_cast<std::byte*>(tensor.data()) + at * static_cast<int64_t>(aclDataTypeSize(tensor.dtype));
}

// Puts the first element of `output` where element x of `other` lies, and expects a refusal.
void ExpectRefused(OperatorCall& call, size_t index, Tensor& output, Tensor& other, int64_t x, Spacing spacing) {
  const ptrdiff_t offset = At(output, 0, spacing) - static_cast<std::byte*>(output.data());
  ASSERT_EQ(aclSetTensorAddr(call.executor(), index, nullptr, At(other, x, spacing) - offset), ACLNN_SUCCESS);
  const std::vector<std::byte> before = call.Results();
  ASSERT_EQ(call.Start(nullptr), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACLNN_ERR_PARAM_INVALID) << output.name << " on " << other.name;
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("shares memory with"));
  EXPECT_EQ(call.Results(), before);
  ASSERT_EQ(aclSetTensorAddr(call.executor(), index, nullptr, output.data()), ACLNN_SUCCESS);
}

bool Replaces(Family family, const Tensor& output, const Tensor& other) {
  if (family != Family::kMerge && family != Family::kMergePacked) return false;
  return (output.name == "attnOut" && other.name == "prevAttnOut") ||
         (output.name == "softmaxMax" && other.name == "prevSoftmaxMax") ||
         (output.name == "softmaxSum" && other.name == "prevSoftmaxSum");
}

TEST_P(Aliasing, OutputsShareNothingWithAnyTensorOfTheCall) {
  const auto [family, spacing] = GetParam();
  OperatorCall call(family, spacing);
  ASSERT_EQ(call.Plan(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor()), ACLNN_SUCCESS);
  size_t index = 0;
  for (Tensor& output : call.tensors()) {
    for (Tensor& other : call.tensors()) {
      if (!output.output || &output == &other) continue;
      if (!Replaces(family, output, other)) ExpectRefused(call, index, output, other, 0, spacing);
      if (other.elements() > 1) ExpectRefused(call, index, output, other, other.elements() - 1, spacing);
    }
    ++index;
  }
  EXPECT_EQ(call.Start(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
}

TEST_P(Aliasing, TensorsLieOutsideTheWorkspace) {
  const auto [family, spacing] = GetParam();
  OperatorCall call(family, spacing);
  ASSERT_EQ(call.Plan(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  if (call.workspace().empty()) return;
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor()), ACLNN_SUCCESS);
  call.workspace().resize(call.workspace().size() + 64);
  size_t index = 0;
  for (Tensor& tensor : call.tensors()) {
    // The tensor begins at byte 64 of the workspace, which the operator uses.
    ASSERT_EQ(aclSetTensorAddr(call.executor(), index, nullptr, call.workspace().data() + 64), ACLNN_SUCCESS);
    ASSERT_EQ(call.Start(nullptr), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(tensor.name + ": shares memory with workspace"));
    ASSERT_EQ(aclSetTensorAddr(call.executor(), index++, nullptr, tensor.data()), ACLNN_SUCCESS);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Aliasing,
                         ::testing::Combine(::testing::ValuesIn(AllFamilies()),
                                            ::testing::Values(Spacing::kDense, Spacing::kSpread)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == Spacing::kSpread ? "_spread" : "");
                         });

// The elements of `out` lie in the gaps of another tensor of the call, and share nothing with it.
TEST(AliasingOfStrides, InterleavedTensorsAreApart) {
  std::vector<float> in(8, 1.0F), out(3 * 8 * 2);
  Handles handles;
  const auto tensor = [&](float* data) { return handles.Tensor({data, DType::kF32, {1, 1, 8, 1}, {24, 24, 3, 1}}); };
  ForwardParameters p;
  p.query = p.key = p.value = handles.Tensor(in.data(), ACL_FLOAT, {1, 1, 8, 1});
  p.out = tensor(out.data());
  std::vector<float> max(64), sum(64);
  p.softmax_max = handles.Tensor(max.data(), ACL_FLOAT, {1, 1, 8, 8});
  p.softmax_sum = handles.Tensor(sum.data(), ACL_FLOAT, {1, 1, 8, 8});
  p.value = tensor(out.data() + 1);
  EXPECT_EQ(RunFace(ForwardVersion::kScore, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  p.value = tensor(out.data() + 3);
  EXPECT_EQ(RunFace(ForwardVersion::kScore, p), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("attentionOut: shares memory with value"));
}

TEST(AliasingOfStrides, StatisticsBySequenceWhoseElementsCoincideAreRefused) {
  ShapedForward call({.sq = 4, .sk = 4}, "TND");
  std::vector<float> some(64);
  for (const Dims& stride : {Dims{0, 8, 1}, Dims{16, 0, 1}, Dims{16, 8, 0}, Dims{15, 8, 1}, Dims{16, 7, 1}}) {
    for (const auto member : {&ForwardParameters::softmax_max, &ForwardParameters::softmax_sum}) {
      const aclTensor* const right = call.p.*member;
      call.p.*member = call.handles().Tensor({some.data(), DType::kF32, {4, 2, 8}, stride});
      ExpectInvalid(call, member == &ForwardParameters::softmax_max ? "softmaxMax.stride" : "softmaxSum.stride");
      call.p.*member = right;
    }
  }
}

TEST(AliasingOfStrides, SpansThatNoMemoryHasAreRefused) {
  ShapedForward call;
  std::vector<float> some(64);
  call.p.query = call.handles().Tensor({some.data(), DType::kF32, {1, 2, 1024, 16}, {1, int64_t{1} << 62, 1 << 20, 2}});
  ExpectInvalid(call, "query.stride");
  call.p.query = call.handles().Tensor({some.data(), DType::kF32, {1, 2, 1024, 16}, {1, 1, 1 << 20, int64_t{1} << 60}});
  ExpectInvalid(call, "query.stride");
}

}  // namespace
}  // namespace fa::test
