// A server's first call for two prompts of 5 and 3 tokens: causal, 4 query heads on 2 key heads, layout BSND.
#include "aclnnop/aclnn_prompt_flash_attention_v3.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kBatch = 2, kTokens = 5, kHeads = 4, kHeadsKv = 2, kSize = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> queries = {kBatch, kTokens, kHeads, kSize}, keys = {kBatch, kTokens, kHeadsKv, kSize};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(queries), 0.7), queries, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(keys), 1.1), keys, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(keys), 1.9), keys, ACL_FLOAT);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_UINT8);
  DeviceTensor out = CreateOutput<float>(queries, ACL_FLOAT);
  const int64_t lengths[kBatch] = {5, 3};  // rows beyond a length are written as 0
  aclIntArray* rows = aclCreateIntArray(lengths, kBatch);

  char layout[] = "BSND";
  constexpr double kScale = 0.5;
  constexpr int64_t kAllTokens = 2147483647, kInnerPrecise = 0, kLeftUpCausal = 2;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnPromptFlashAttentionV3GetWorkspaceSize(query.tensor, key.tensor, value.tensor, nullptr, mask.tensor, rows,
                                                    rows, nullptr, nullptr, nullptr, nullptr, nullptr, kHeads, kScale,
                                                    kAllTokens, kAllTokens, layout, kHeadsKv, kLeftUpCausal,
                                                    kInnerPrecise, out.tensor, &workspace_size, &executor));
  Execute(aclnnPromptFlashAttentionV3, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kHeads * kSize);

  CHECK(aclDestroyIntArray(rows));
  for (DeviceTensor* tensor : {&query, &key, &value, &mask, &out}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
