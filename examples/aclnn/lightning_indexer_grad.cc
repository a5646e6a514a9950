// Computes the gradients of the lightning indexer's queries, keys and weights. The differentiated function is the sum
// of the scores of the chosen keys.
#include "aclnnop/aclnn_lightning_indexer.h"
#include "aclnnop/aclnn_lightning_indexer_grad.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kBatch = 1, kQueries = 3, kKeys = 5, kHeads = 2, kSize = 4, kSelected = 2;
  constexpr int64_t kRightDownCausal = 3, kAllTokens = 9223372036854775807;
  constexpr bool kReturnValues = true, kDeterministic = true;
  char layout[] = "BSND";
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  // The device takes 16-bit types only. This library also takes float, whose results print the same on every CPU.
  const std::vector<int64_t> queries = {kBatch, kQueries, kHeads, kSize}, keys = {kBatch, kKeys, 1, kSize};
  const std::vector<int64_t> heads = {kBatch, kQueries, kHeads}, chosen = {kBatch, kQueries, 1, kSelected};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(queries), 0.37), queries, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(keys), 0.91), keys, ACL_FLOAT);
  DeviceTensor weights = CreateTensor(Wave(ElementsOf(heads), 1.3), heads, ACL_FLOAT);
  DeviceTensor indices = CreateOutput<int32_t>(chosen, ACL_INT32);
  DeviceTensor values = CreateOutput<float>(chosen, ACL_FLOAT);
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnLightningIndexerGetWorkspaceSize(
      query.tensor, key.tensor, weights.tensor, nullptr, nullptr, nullptr, layout, layout, kSelected, kRightDownCausal,
      kAllTokens, kAllTokens, kReturnValues, indices.tensor, values.tensor, &workspace_size, &executor));
  Execute(aclnnLightningIndexer, workspace_size, executor, stream);
  const std::vector<int32_t> selected = ToHost<int32_t>(indices);
  std::printf("selected keys\n");
  for (size_t i = 0; i < selected.size(); ++i) {
    std::printf("%3d%c", selected[i], (i + 1) % kSelected == 0 ? '\n' : ' ');
  }
  Print("their scores", ToHost<float>(values), kSelected);

  DeviceTensor d_values =
      CreateTensor(std::vector<float>(static_cast<size_t>(ElementsOf(chosen)), 1.0F), chosen, ACL_FLOAT);
  DeviceTensor d_query = CreateOutput<float>(queries, ACL_FLOAT);
  DeviceTensor d_key = CreateOutput<float>(keys, ACL_FLOAT);
  DeviceTensor d_weights = CreateOutput<float>(heads, ACL_FLOAT);
  CHECK(aclnnLightningIndexerGradGetWorkspaceSize(query.tensor, key.tensor, d_values.tensor, indices.tensor,
                                                  weights.tensor, nullptr, nullptr, kHeads, layout, kRightDownCausal,
                                                  kAllTokens, kAllTokens, kDeterministic, d_query.tensor, d_key.tensor,
                                                  d_weights.tensor, &workspace_size, &executor));
  Execute(aclnnLightningIndexerGrad, workspace_size, executor, stream);
  Print("gradient of the queries", ToHost<float>(d_query), kHeads * kSize);
  Print("gradient of the keys", ToHost<float>(d_key), kSize);
  Print("gradient of the weights", ToHost<float>(d_weights), kHeads);

  for (DeviceTensor* tensor : {&query, &key, &weights, &indices, &values, &d_values, &d_query, &d_key, &d_weights}) {
    Destroy(*tensor);
  }
  StopDevice(kDevice, stream);
  return 0;
}
