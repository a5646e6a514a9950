// A step of decoding for two requests with 6 and 3 keys. The keys lie in pages of 4 rows in any order.
#include "aclnnop/aclnn_incre_flash_attention_v3.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kSize = 4, kPages = 4, kPageRows = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> queries = {kBatch, 1, kHeads * kSize}, pages = {kPages, kPageRows, kHeadsKv * kSize};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(queries), 0.7), queries, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(pages), 1.1), pages, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(pages), 1.9), pages, ACL_FLOAT);
  DeviceTensor out = CreateOutput<float>(queries, ACL_FLOAT);
  // Key j of request b is row j % 4 of page table[b][j / 4]. Entries of unused pages are not read.
  DeviceTensor table = CreateTensor(std::vector<int32_t>{2, 0, 3, -1}, {kBatch, 2}, ACL_INT32);
  const int64_t lengths[kBatch] = {6, 3};
  aclIntArray* keys_in_use = aclCreateIntArray(lengths, kBatch);
  // Destroying a list destroys its tensors.
  aclTensorList* keys = aclCreateTensorList(&key.tensor, 1);
  aclTensorList* values = aclCreateTensorList(&value.tensor, 1);

  char layout[] = "BSH";
  constexpr double kScale = 0.5;
  constexpr int64_t kInnerPrecise = 0;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnIncreFlashAttentionV3GetWorkspaceSize(query.tensor, keys, values, nullptr, nullptr, keys_in_use, nullptr,
                                                   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, table.tensor,
                                                   kHeads, kScale, layout, kHeadsKv, kPageRows, kInnerPrecise,
                                                   out.tensor, &workspace_size, &executor));
  Execute(aclnnIncreFlashAttentionV3, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kHeads * kSize);

  CHECK(aclDestroyIntArray(keys_in_use));
  for (aclTensorList* list : {keys, values}) CHECK(aclDestroyTensorList(list));
  for (void* memory : {key.memory, value.memory}) CHECK(aclrtFree(memory));
  for (DeviceTensor* tensor : {&query, &table, &out}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
