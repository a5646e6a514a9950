// Causal attention of 2 heads over 4 tokens in layout BSH.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kBatch = 1, kHeads = 2, kTokens = 4, kSize = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> shape = {kBatch, kTokens, kHeads * kSize};
  const std::vector<int64_t> statistics = {kBatch, kHeads, kTokens, 8};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(shape), 0.7), shape, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(shape), 1.1), shape, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(shape), 1.9), shape, ACL_FLOAT);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_UINT8);
  DeviceTensor max = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor sum = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor out = CreateOutput<float>(shape, ACL_FLOAT);

  char layout[] = "BSH";
  constexpr double kScale = 0.5, kKeepAll = 1.0;
  constexpr int64_t kAllTokens = 2147483647, kInnerPrecise = 0, kLeftUpCausal = 2;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionScoreGetWorkspaceSize(query.tensor, key.tensor, value.tensor, nullptr, nullptr, nullptr,
                                                 mask.tensor, nullptr, kScale, kKeepAll, kAllTokens, kAllTokens, kHeads,
                                                 layout, kInnerPrecise, kLeftUpCausal, max.tensor, sum.tensor, nullptr,
                                                 out.tensor, &workspace_size, &executor));
  Execute(aclnnFlashAttentionScore, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kHeads * kSize);
  Print("max", FirstOfEight(ToHost<float>(max)), kTokens);
  Print("sum", FirstOfEight(ToHost<float>(sum)), kTokens);

  for (DeviceTensor* tensor : {&query, &key, &value, &mask, &max, &sum, &out}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
