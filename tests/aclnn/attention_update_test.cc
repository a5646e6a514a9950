// Tests the device's AttentionUpdate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/run_phases.h"
#include "aclnnop/aclnn_attention_update.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

class AttentionUpdate : public ::testing::Test {
 protected:
  aclError Run(int64_t update_type = 1) {
    // The tensors are made without handles_, because destroying a list also destroys its tensors.
    const auto tensor = [](std::vector<float>& values, const std::vector<int64_t>& shape) {
      return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                             shape.size(), values.data());
    };
    const aclTensor* const lses[] = {tensor(lse_[0], {3}), tensor(lse_[1], {3})};
    const aclTensor* const outs[] = {tensor(parts_[0], {3, 2}), tensor(parts_[1], second_shape_)};
    aclTensorList* lse = aclCreateTensorList(lses, 2);
    aclTensorList* parts = aclCreateTensorList(outs, 2);
    aclTensor* out = handles_.Tensor(out_.data(), ACL_FLOAT, {3, 2});
    aclTensor* lse_out = with_lse_ ? handles_.Tensor(lse_out_.data(), ACL_FLOAT, {3}) : nullptr;
    const aclError status = RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnAttentionUpdateGetWorkspaceSize(no_list_ ? nullptr : lse, parts, update_type, out, lse_out, size,
                                                      executor);
        },
        aclnnAttentionUpdate);
    aclDestroyTensorList(lse);
    aclDestroyTensorList(parts);
    return status;
  }

  Handles handles_;
  std::vector<std::vector<float>> lse_ = {{0, INFINITY, -INFINITY}, {1, 2, INFINITY}};
  std::vector<std::vector<float>> parts_ = {{1, 2, NAN, NAN, NAN, NAN}, {3, 4, 5, 6, NAN, NAN}};
  std::vector<float> out_ = std::vector<float>(6, -7), lse_out_ = std::vector<float>(3, -7);
  std::vector<int64_t> second_shape_ = {3, 2};
  bool with_lse_ = true, no_list_ = false;
};

TEST_F(AttentionUpdate, MergesAndGivesRowsWithoutKeysAnLseOfInfinity) {
  ASSERT_EQ(Run(), ACL_SUCCESS) << aclGetRecentErrMsg();
  const double weight = 1 / (1 + std::exp(-1.0));  // the weight of the second part in row 0
  EXPECT_NEAR(out_[0], 1 + 2 * weight, 16 * 0x1p-24);
  EXPECT_NEAR(lse_out_[0], 1 + std::log(1 + std::exp(-1.0)), 16 * 0x1p-24);
  EXPECT_EQ(std::vector<float>(out_.begin() + 2, out_.end()), (std::vector<float>{5, 6, 0, 0}));
  EXPECT_EQ(lse_out_[1], 2.0F);
  EXPECT_EQ(lse_out_[2], INFINITY);
}

TEST_F(AttentionUpdate, LseOutIsNullExactlyWithType0) {
  EXPECT_EQ(Run(0), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("lseOut: given"));
  EXPECT_EQ(Run(2), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("updateType=2, want 0 or 1"));
  with_lse_ = false;
  EXPECT_EQ(Run(1), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("lseOut: missing"));
  EXPECT_EQ(out_, std::vector<float>(6, -7));
  EXPECT_EQ(Run(0), ACL_SUCCESS) << aclGetRecentErrMsg();
}

TEST_F(AttentionUpdate, EmptyTensorsNeedNoAddress) {
  const std::vector<int64_t> shape = {0, 4};
  const auto tensor = [&](size_t rank) {
    return aclCreateTensor(shape.data(), rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), rank, nullptr);
  };
  const aclTensor* const lses[] = {tensor(1)};
  const aclTensor* const outs[] = {tensor(2)};
  aclTensorList* lse = aclCreateTensorList(lses, 1);
  aclTensorList* parts = aclCreateTensorList(outs, 1);
  aclTensor* out = handles_.Tensor(nullptr, ACL_FLOAT, {0, 4});
  aclTensor* lse_out = handles_.Tensor(nullptr, ACL_FLOAT, {0});
  EXPECT_EQ(RunPhases(
                [&](uint64_t* size, aclOpExecutor** executor) {
                  return aclnnAttentionUpdateGetWorkspaceSize(lse, parts, 1, out, lse_out, size, executor);
                },
                aclnnAttentionUpdate),
            ACL_SUCCESS)
      << aclGetRecentErrMsg();
  aclDestroyTensorList(lse);
  aclDestroyTensorList(parts);
}

TEST_F(AttentionUpdate, NamesTheIndexOfAPartThatDoesNotFit) {
  second_shape_ = {2, 3};
  EXPECT_EQ(Run(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("localOut[1].shape[0]=2, want 3 (localOut[0].shape[0])"));
  no_list_ = true;
  EXPECT_EQ(Run(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("lse: null"));
}

}  // namespace
}  // namespace fa::test
