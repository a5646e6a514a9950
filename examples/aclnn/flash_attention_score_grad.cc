// Attention and its gradients, 4 query heads on 2 key heads, in layout BNSD.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kHeads = 4, kHeadsKv = 2, kQueries = 2, kKeys = 3, kSize = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> q_shape = {1, kHeads, kQueries, kSize};
  const std::vector<int64_t> kv_shape = {1, kHeadsKv, kKeys, kSize};
  const std::vector<int64_t> statistics = {1, kHeads, kQueries, 8};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(q_shape), 0.7), q_shape, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(kv_shape), 1.1), kv_shape, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(kv_shape), 1.9), kv_shape, ACL_FLOAT);
  DeviceTensor max = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor sum = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor out = CreateOutput<float>(q_shape, ACL_FLOAT);

  char layout[] = "BNSD";
  constexpr double kScale = 0.5, kKeepAll = 1.0;
  constexpr int64_t kAllTokens = 2147483647, kInnerPrecise = 0, kNoMask = 0, kAddThenScale = 1;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionScoreV2GetWorkspaceSize(
      query.tensor, key.tensor, value.tensor, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kScale,
      kKeepAll, kAllTokens, kAllTokens, kHeads, layout, kInnerPrecise, kNoMask, kAddThenScale, max.tensor, sum.tensor,
      nullptr, out.tensor, &workspace_size, &executor));
  Execute(aclnnFlashAttentionScoreV2, workspace_size, executor, stream);

  DeviceTensor dy = CreateTensor(Wave(ElementsOf(q_shape), 0.3), q_shape, ACL_FLOAT);
  DeviceTensor dq = CreateOutput<float>(q_shape, ACL_FLOAT);
  DeviceTensor dk = CreateOutput<float>(kv_shape, ACL_FLOAT);
  DeviceTensor dv = CreateOutput<float>(kv_shape, ACL_FLOAT);
  CHECK(aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
      query.tensor, key.tensor, value.tensor, dy.tensor, nullptr, nullptr, nullptr, nullptr, max.tensor, sum.tensor,
      nullptr, out.tensor, nullptr, nullptr, nullptr, kScale, kKeepAll, kAllTokens, kAllTokens, kHeads, layout,
      kInnerPrecise, kNoMask, kAddThenScale, dq.tensor, dk.tensor, dv.tensor, nullptr, &workspace_size, &executor));
  Execute(aclnnFlashAttentionScoreGradV2, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kSize);
  Print("dq", ToHost<float>(dq), kSize);
  Print("dk", ToHost<float>(dk), kSize);
  Print("dv", ToHost<float>(dv), kSize);

  for (DeviceTensor* tensor : {&query, &key, &value, &max, &sum, &out, &dy, &dq, &dk, &dv}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
