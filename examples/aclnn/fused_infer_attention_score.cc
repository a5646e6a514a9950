// A step of serving two requests in one call: a chunk of 3 new rows after 2 keys, and one row after 6 keys. The rows
// are packed, and the keys lie in pages of 4 rows in any order.
#include "aclnnop/aclnn_fused_infer_attention_score_v3.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kRequests = 2, kRows = 4, kHeads = 4, kHeadsKv = 2, kSize = 4, kPages = 4, kPageRows = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> queries = {kRows, kHeads, kSize}, pages = {kPages, kPageRows, kHeadsKv * kSize};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(queries), 0.7), queries, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(pages), 1.1), pages, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(pages), 1.9), pages, ACL_FLOAT);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_UINT8);
  DeviceTensor out = CreateOutput<float>(queries, ACL_FLOAT);
  DeviceTensor lse = CreateOutput<float>({kRows, kHeads, 1}, ACL_FLOAT);
  // Key j of request b is row j % 4 of page table[b][j / 4]. Entries of unused pages are not read.
  DeviceTensor table = CreateTensor(std::vector<int32_t>{2, 0, 3, 1}, {kRequests, 2}, ACL_INT32);
  const int64_t ends[kRequests] = {3, 4}, lengths[kRequests] = {5, 7};
  aclIntArray* ends_of_rows = aclCreateIntArray(ends, kRequests);
  aclIntArray* keys_in_use = aclCreateIntArray(lengths, kRequests);
  // Destroying a list destroys its tensors.
  aclTensorList* keys = aclCreateTensorList(&key.tensor, 1);
  aclTensorList* values = aclCreateTensorList(&value.tensor, 1);

  char layout[] = "TND";
  constexpr double kScale = 0.5;
  constexpr int64_t kNoLimit = 2147483647, kCausal = 3, kInnerPrecise = 0;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
      query.tensor, keys, values, nullptr, mask.tensor, ends_of_rows, keys_in_use, nullptr, nullptr, nullptr, nullptr,
      nullptr, nullptr, nullptr, table.tensor, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
      nullptr, nullptr, nullptr, nullptr, kHeads, kScale, kNoLimit, kNoLimit, layout, kHeadsKv, kCausal, kInnerPrecise,
      kPageRows, 0, true, 0, 0, out.tensor, lse.tensor, &workspace_size, &executor));
  Execute(aclnnFusedInferAttentionScoreV3, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kHeads * kSize);
  Print("lse", ToHost<float>(lse), kHeads);

  for (aclIntArray* array : {ends_of_rows, keys_in_use}) CHECK(aclDestroyIntArray(array));
  for (aclTensorList* list : {keys, values}) CHECK(aclDestroyTensorList(list));
  for (void* memory : {key.memory, value.memory}) CHECK(aclrtFree(memory));
  for (DeviceTensor* tensor : {&query, &mask, &table, &out, &lse}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
