// Computes the KL loss that trains a lightning indexer over all keys, and its gradients. The target is the distribution
// of dense causal attention.
#include "aclnnop/aclnn_dense_lightning_indexer_grad_kl_loss.h"
#include "aclnnop/aclnn_dense_lightning_indexer_softmax_lse.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "device.h"

namespace {

constexpr int64_t kBatch = 1, kTokens = 4, kHeads = 2, kSize = 8, kIndexHeads = 2, kIndexSize = 4;
constexpr int64_t kAllTokens = 9223372036854775807;
constexpr double kScale = 0.5;
char layout[] = "BSND";

// The device takes 16-bit types only. This library also takes float, whose results print the same on every CPU.
DeviceTensor Input(const std::vector<int64_t>& shape, double frequency) {
  return CreateTensor(Wave(ElementsOf(shape), frequency), shape, ACL_FLOAT);
}
DeviceTensor Output(const std::vector<int64_t>& shape) { return CreateOutput<float>(shape, ACL_FLOAT); }

// Converts a statistic of attention, [B, N1, S1, 8], to the form that the loss takes, [B, N2, S1, N1 / N2].
DeviceTensor OnePerRow(const DeviceTensor& statistic) {
  return CreateTensor(FirstOfEight(ToHost<float>(statistic)), {kBatch, kHeads, kTokens, 1}, ACL_FLOAT);
}

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> rows = {kBatch, kTokens, kHeads, kSize}, statistics = {kBatch, kHeads, kTokens, 8};
  DeviceTensor query = Input(rows, 0.7), key = Input(rows, 1.1), value = Input(rows, 1.9), out = Output(rows);
  DeviceTensor max = Output(statistics), sum = Output(statistics);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_UINT8);
  constexpr double kKeepAll = 1.0;
  constexpr int64_t kInnerPrecise = 0, kCausal = 3;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionScoreGetWorkspaceSize(query.tensor, key.tensor, value.tensor, nullptr, nullptr, nullptr,
                                                 mask.tensor, nullptr, kScale, kKeepAll, kAllTokens, kAllTokens, kHeads,
                                                 layout, kInnerPrecise, kCausal, max.tensor, sum.tensor, nullptr,
                                                 out.tensor, &workspace_size, &executor));
  Execute(aclnnFlashAttentionScore, workspace_size, executor, stream);
  DeviceTensor row_max = OnePerRow(max), row_sum = OnePerRow(sum);

  DeviceTensor query_index = Input({kBatch, kTokens, kIndexHeads, kIndexSize}, 0.37);
  DeviceTensor key_index = Input({kBatch, kTokens, 1, kIndexSize}, 0.91);
  DeviceTensor weights = Input({kBatch, kTokens, kIndexHeads}, 1.3);
  DeviceTensor max_index = Output({kBatch, 1, kTokens}), sum_index = Output({kBatch, 1, kTokens});
  CHECK(aclnnDenseLightningIndexerSoftmaxLseGetWorkspaceSize(
      query_index.tensor, key_index.tensor, weights.tensor, nullptr, nullptr, layout, kCausal, kAllTokens, kAllTokens,
      max_index.tensor, sum_index.tensor, &workspace_size, &executor));
  Execute(aclnnDenseLightningIndexerSoftmaxLse, workspace_size, executor, stream);

  DeviceTensor d_query = Output({kBatch, kTokens, kIndexHeads, kIndexSize});
  DeviceTensor d_key = Output({kBatch, kTokens, 1, kIndexSize});
  DeviceTensor d_weights = Output({kBatch, kTokens, kIndexHeads}), loss = Output({1});
  CHECK(aclnnDenseLightningIndexerGradKLLossGetWorkspaceSize(
      query.tensor, key.tensor, query_index.tensor, key_index.tensor, weights.tensor, row_max.tensor, row_sum.tensor,
      max_index.tensor, sum_index.tensor, nullptr, nullptr, nullptr, nullptr, kScale, layout, kCausal, kAllTokens,
      kAllTokens, d_query.tensor, d_key.tensor, d_weights.tensor, loss.tensor, &workspace_size, &executor));
  Execute(aclnnDenseLightningIndexerGradKLLoss, workspace_size, executor, stream);
  Print("loss", ToHost<float>(loss), 1);
  Print("gradient of the indexer's queries", ToHost<float>(d_query), kIndexHeads * kIndexSize);
  Print("gradient of its keys", ToHost<float>(d_key), kIndexSize);
  Print("gradient of its weights", ToHost<float>(d_weights), kIndexHeads);

  for (DeviceTensor* tensor : {&query, &key, &value, &out, &max, &sum, &mask, &row_max, &row_sum, &query_index,
                               &key_index, &weights, &max_index, &sum_index, &d_query, &d_key, &d_weights, &loss}) {
    Destroy(*tensor);
  }
  StopDevice(kDevice, stream);
  return 0;
}
