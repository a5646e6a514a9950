// Writes the keys and values of three new tokens into paged caches: first [pages,rows,heads,size], then the chunked
// form PA_NZ.
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"
#include "device.h"

namespace {

constexpr int64_t kTokens = 3, kHeads = 2, kSize = 4, kPages = 2, kPageRows = 3, kChunk = 2;

// Writes `rows` into new caches of this shape, as keys and as values. Prints the cache of keys.
void Scatter(const char* title, const std::vector<int64_t>& shape, char* cache_mode, int64_t columns,
             aclrtStream stream) {
  std::vector<float> rows(kTokens * kHeads * kSize);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i + 1);
  DeviceTensor key = CreateTensor(rows, {kTokens, kHeads, kSize}, ACL_FLOAT);
  DeviceTensor value = CreateTensor(rows, {kTokens, kHeads, kSize}, ACL_FLOAT);
  DeviceTensor key_cache = CreateOutput<float>(shape, ACL_FLOAT);
  DeviceTensor value_cache = CreateOutput<float>(shape, ACL_FLOAT);
  // Token 0 goes to the last row of page 1. Token 1 goes nowhere. Token 2 goes to the first row of page 0.
  DeviceTensor slots = CreateTensor(std::vector<int32_t>{5, -1, 0}, {kTokens}, ACL_INT32);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnScatterPaKvCacheGetWorkspaceSize(key.tensor, key_cache.tensor, slots.tensor, value.tensor,
                                              value_cache.tensor, nullptr, nullptr, nullptr, cache_mode, nullptr,
                                              nullptr, nullptr, &workspace_size, &executor));
  Execute(aclnnScatterPaKvCache, workspace_size, executor, stream);
  Print(title, ToHost<float>(key_cache), columns);
  for (DeviceTensor* tensor : {&key, &value, &key_cache, &value_cache, &slots}) Destroy(*tensor);
}

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);
  char norm[] = "Norm", chunks[] = "PA_NZ";
  Scatter("rows of the cache", {kPages, kPageRows, kHeads, kSize}, norm, kHeads * kSize, stream);
  Scatter("chunks of the cache", {kPages, kHeads, kSize / kChunk, kPageRows, kChunk}, chunks, kPageRows * kChunk,
          stream);
  StopDevice(kDevice, stream);
  return 0;
}
