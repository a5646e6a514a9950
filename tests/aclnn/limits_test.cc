// Sizes that no machine has, through the device's interface: the first phase refuses them at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_incre_flash_attention_v4.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

alignas(64) std::byte memory[1 << 12];

/// All strides 0 but the innermost, over a few bytes.
TensorView Claim(const Dims& shape, DType dtype = DType::kF32, int64_t innermost = 1) {
  Dims stride;
  for (int i = 0; i < shape.rank(); ++i) stride.push_back(i + 1 == shape.rank() ? innermost : 0);
  return {memory, dtype, shape, stride};
}

struct Phase {
  aclnnStatus status = ACLNN_SUCCESS;
  std::string message;
  uint64_t workspace_size = 0;
};

Phase Decode(int64_t batch, int64_t rows, bool padded) {
  const HangAlarm alarm;
  Handles handles;
  const auto list = [&](const TensorView& view) {
    const aclTensor* tensor = handles.Tensor(view);
    return aclCreateTensorList(&tensor, 1);
  };
  const aclTensorList* key = list(Claim({batch, 1, rows, 8}));
  const aclTensorList* value = list(Claim({batch, 1, rows, 8}));
  int64_t padding = 0;
  Phase phase;
  aclOpExecutor* executor = nullptr;
  std::string layout = "BNSD";
  phase.status = aclnnIncreFlashAttentionV4GetWorkspaceSize(
      handles.Tensor(Claim({batch, 1, 1, 8})), key, value, nullptr, nullptr, handles.Array({1}), nullptr, nullptr,
      nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, padded ? handles.Tensor(&padding, ACL_INT64, {1}) : nullptr,
      1, 1.0, layout.data(), 0, 0, 1, handles.Tensor({memory, DType::kF32, {batch, 1, 1, 8}, {}}),
      &phase.workspace_size, &executor);
  phase.message = aclGetRecentErrMsg();
  return phase;
}

TEST(AclnnLimits, ABatchOfPaddedKeysIsNotWalkedBeforeItIsKnownToFit) {
  for (const int exponent : {31, 40, 55}) {
    for (const bool padded : {false, true}) {
      const Phase phase = Decode(int64_t{1} << exponent, 4, padded);
      EXPECT_NE(phase.status, ACLNN_SUCCESS);
      EXPECT_THAT(phase.message, HasSubstr(std::to_string(int64_t{1} << exponent)));
    }
  }
  EXPECT_EQ(Decode(2, 4, true).status, ACLNN_SUCCESS);
}

TEST(AclnnLimits, CopiesBeyondAllMemoryAreRefusedAndNotAddedUpModulo2To64) {
  const HangAlarm alarm;
  Handles handles;
  // Keys and values whose innermost stride is not 1 are copied into the workspace: twice 2^62 bytes, and queries.
  const Dims keys{1, 1, int64_t{1} << 59, 2};
  aclOpExecutor* executor = nullptr;
  uint64_t size = 0;
  std::string layout = "BNSD";
  const aclnnStatus status = aclnnFlashAttentionScoreGetWorkspaceSize(
      handles.Tensor(Claim({1, 1, 1, 2})), handles.Tensor(Claim(keys, DType::kF32, 0)),
      handles.Tensor(Claim(keys, DType::kF32, 0)), nullptr, nullptr, nullptr, nullptr, nullptr, 1.0, 1.0, 2147483647,
      2147483647, 1, layout.data(), 0, 0, handles.Tensor({memory, DType::kF32, {1, 1, 1, 8}, {}}),
      handles.Tensor({memory, DType::kF32, {1, 1, 1, 8}, {}}), nullptr,
      handles.Tensor({memory, DType::kF32, {1, 1, 1, 2}, {}}), &size, &executor);
  EXPECT_EQ(status, 361001);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("workspace of more than"));
}

}  // namespace
}  // namespace fa::test
