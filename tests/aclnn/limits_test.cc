// Calls the device's interface with sizes beyond the memory of any machine. The first phase must refuse them at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/operator_call.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_incre_flash_attention_v4.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

alignas(64) std::byte memory[1 << 12];

/// Returns a view that claims `shape` but has a few bytes of memory: all strides except the innermost are 0.
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
  // Keys and values whose innermost stride is not 1 are copied into the workspace. Each copy needs 2^62 bytes, so the
  // sum of both exceeds 63 bits. There are no queries, so the call is not refused for its amount of work.
  const int64_t heads = int64_t{1} << 20;
  const Dims keys{1, heads, int64_t{1} << 30, 1024}, queries{1, heads, 0, 1024}, statistics{1, heads, 0, 8};
  aclOpExecutor* executor = nullptr;
  uint64_t size = 0;
  std::string layout = "BNSD";
  const aclnnStatus status = aclnnFlashAttentionScoreGetWorkspaceSize(
      handles.Tensor(Claim(queries)), handles.Tensor(Claim(keys, DType::kF32, 0)),
      handles.Tensor(Claim(keys, DType::kF32, 0)), nullptr, nullptr, nullptr, nullptr, nullptr, 1.0, 1.0, 2147483647,
      2147483647, heads, layout.data(), 0, 0, handles.Tensor({memory, DType::kF32, statistics, {}}),
      handles.Tensor({memory, DType::kF32, statistics, {}}), nullptr,
      handles.Tensor({memory, DType::kF32, queries, {}}), &size, &executor);
  EXPECT_EQ(status, 361001);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("workspace of more than"));
}

/// Returns whether the call's work and memory grow only with the size of tensors for which the caller has memory.
bool IsAsLongAsItsTensors(Family family, int64_t size) {
  constexpr int64_t kHeads = 2;
  const bool sparse = family == Family::kSparseForward || family == Family::kSparseBackward ||
                      family == Family::kSharedKv || family == Family::kSharedKvBackward;
  switch (family) {
    case Family::kMerge:
    case Family::kMergePacked:
    case Family::kMergeLse:
    case Family::kIndexerLossValue:
    case Family::kScatter:
    case Family::kGather: return true;
    default: return sparse && size == kHeads;
  }
}

class AclnnAbsurdSizes : public ::testing::TestWithParam<Family> {};

TEST_P(AclnnAbsurdSizes, OfEachDimensionAreRefused) {
  const HangAlarm alarm;
  int asked = 0;
  for (const int64_t size : {1, 2, 3, 4, 5, 6, 8}) {
    for (const int exponent : {40, 50, 60, 62}) {
      OperatorCall call(GetParam(), {.size = size, .claimed = int64_t{1} << exponent});
      if (!call.has_claim()) continue;
      ++asked;
      const aclnnStatus status = call.GetWorkspaceSize();
      if (status == ACLNN_SUCCESS && IsAsLongAsItsTensors(GetParam(), size)) continue;
      EXPECT_NE(status, ACLNN_SUCCESS) << "2^" << exponent << " for " << size;
      EXPECT_THAT(aclGetRecentErrMsg(), ::testing::ContainsRegex("[0-9]")) << "2^" << exponent << " for " << size;
    }
  }
  EXPECT_GE(asked, 8);
}

INSTANTIATE_TEST_SUITE_P(All, AclnnAbsurdSizes, ::testing::ValuesIn(AllFamilies()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace fa::test
