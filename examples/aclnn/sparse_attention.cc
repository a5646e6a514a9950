// A training step of sparse attention as in DeepSeek-V3.2. The lightning indexer chooses keys for every query token,
// and sparse attention reads these keys. Then come the gradients, and a KL loss that teaches the indexer the
// attention's weights.
#include "aclnnop/aclnn_lightning_indexer.h"
#include "aclnnop/aclnn_sparse_flash_attention.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss.h"
#include "device.h"

namespace {

constexpr int64_t kBatch = 1, kQueries = 4, kKeys = 10, kHeads = 2, kSize = 8, kRope = 4;
constexpr int64_t kIndexHeads = 2, kIndexSize = 4, kSelected = 3;
constexpr int64_t kRightDownCausal = 3, kAllTokens = 9223372036854775807;
constexpr int64_t kBlockSize = 1, kAttentionMode = 2;
constexpr double kScale = 0.5;
char layout[] = "BSND";

// The device takes 16-bit types only. This library also takes float, whose results print the same on every CPU.
DeviceTensor Input(const std::vector<int64_t>& shape, double frequency) {
  return CreateTensor(Wave(ElementsOf(shape), frequency), shape, ACL_FLOAT);
}
DeviceTensor Output(const std::vector<int64_t>& shape) { return CreateOutput<float>(shape, ACL_FLOAT); }

// Queries, keys and head weights of the indexer, and the keys that it chooses.
struct Indexer {
  DeviceTensor query = Input({kBatch, kQueries, kIndexHeads, kIndexSize}, 0.37);
  DeviceTensor key = Input({kBatch, kKeys, 1, kIndexSize}, 0.91);
  DeviceTensor weights = Input({kBatch, kQueries, kIndexHeads}, 1.3);
  DeviceTensor indices = CreateOutput<int32_t>({kBatch, kQueries, 1, kSelected}, ACL_INT32);
  DeviceTensor values = Output({kBatch, kQueries, 1, kSelected});
};

// Heads have two parts. The values are the first part of the keys.
struct Attention {
  DeviceTensor query = Input({kBatch, kQueries, kHeads, kSize}, 0.7);
  DeviceTensor query_rope = Input({kBatch, kQueries, kHeads, kRope}, 0.23);
  DeviceTensor key = Input({kBatch, kKeys, 1, kSize}, 1.1);
  DeviceTensor key_rope = Input({kBatch, kKeys, 1, kRope}, 0.57);
  DeviceTensor out = Output({kBatch, kQueries, kHeads, kSize});
  DeviceTensor max = Output({kBatch, 1, kQueries, kHeads});
  DeviceTensor sum = Output({kBatch, 1, kQueries, kHeads});
};

void Choose(const Indexer& indexer, aclrtStream stream) {
  constexpr bool kReturnValues = true;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnLightningIndexerGetWorkspaceSize(indexer.query.tensor, indexer.key.tensor, indexer.weights.tensor, nullptr,
                                              nullptr, nullptr, layout, layout, kSelected, kRightDownCausal, kAllTokens,
                                              kAllTokens, kReturnValues, indexer.indices.tensor, indexer.values.tensor,
                                              &workspace_size, &executor));
  Execute(aclnnLightningIndexer, workspace_size, executor, stream);

  const std::vector<int32_t> indices = ToHost<int32_t>(indexer.indices);
  std::printf("selected keys\n");
  for (size_t i = 0; i < indices.size(); ++i) {
    std::printf("%3d%c", indices[i], (i + 1) % kSelected == 0 ? '\n' : ' ');
  }
  Print("their scores", ToHost<float>(indexer.values), kSelected);
}

void Attend(const Attention& attention, const Indexer& indexer, aclrtStream stream) {
  constexpr bool kReturnSoftmax = true;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseFlashAttentionGetWorkspaceSize(
      attention.query.tensor, attention.key.tensor, nullptr, indexer.indices.tensor, nullptr, nullptr, nullptr,
      attention.query_rope.tensor, attention.key_rope.tensor, kScale, kBlockSize, layout, layout, kRightDownCausal,
      kAllTokens, kAllTokens, kAttentionMode, kReturnSoftmax, attention.out.tensor, attention.max.tensor,
      attention.sum.tensor, &workspace_size, &executor));
  Execute(aclnnSparseFlashAttention, workspace_size, executor, stream);
  Print("attention", ToHost<float>(attention.out), kSize);
}

// Computes the gradients of the sum of all outputs.
void Differentiate(const Attention& attention, const Indexer& indexer, aclrtStream stream) {
  const std::vector<int64_t> shape = {kBatch, kQueries, kHeads, kSize};
  DeviceTensor d_out = CreateTensor(std::vector<float>(static_cast<size_t>(ElementsOf(shape)), 1.0F), shape, ACL_FLOAT);
  DeviceTensor d_query = Output(shape);
  DeviceTensor d_key = Output({kBatch, kKeys, 1, kSize});
  DeviceTensor d_query_rope = Output({kBatch, kQueries, kHeads, kRope});
  DeviceTensor d_key_rope = Output({kBatch, kKeys, 1, kRope});
  constexpr bool kDeterministic = true;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseFlashAttentionGradGetWorkspaceSize(
      attention.query.tensor, attention.key.tensor, nullptr, indexer.indices.tensor, d_out.tensor, attention.out.tensor,
      attention.max.tensor, attention.sum.tensor, nullptr, nullptr, attention.query_rope.tensor,
      attention.key_rope.tensor, kScale, kBlockSize, layout, kRightDownCausal, kAllTokens, kAllTokens, kDeterministic,
      d_query.tensor, d_key.tensor, nullptr, d_query_rope.tensor, d_key_rope.tensor, &workspace_size, &executor));
  Execute(aclnnSparseFlashAttentionGrad, workspace_size, executor, stream);
  Print("gradient of keys and values", ToHost<float>(d_key), kSize);
  for (DeviceTensor* tensor : {&d_out, &d_query, &d_key, &d_query_rope, &d_key_rope}) Destroy(*tensor);
}

void Teach(const Attention& attention, const Indexer& indexer, aclrtStream stream) {
  DeviceTensor d_query = Output({kBatch, kQueries, kIndexHeads, kIndexSize});
  DeviceTensor d_key = Output({kBatch, kKeys, 1, kIndexSize});
  DeviceTensor d_weights = Output({kBatch, kQueries, kIndexHeads});
  DeviceTensor loss = Output({1});
  constexpr bool kDeterministic = true;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseLightningIndexerGradKLLossGetWorkspaceSize(
      attention.query.tensor, attention.key.tensor, indexer.query.tensor, indexer.key.tensor, indexer.weights.tensor,
      indexer.indices.tensor, attention.max.tensor, attention.sum.tensor, attention.query_rope.tensor,
      attention.key_rope.tensor, nullptr, nullptr, kScale, layout, kRightDownCausal, kAllTokens, kAllTokens,
      kDeterministic, d_query.tensor, d_key.tensor, d_weights.tensor, loss.tensor, &workspace_size, &executor));
  Execute(aclnnSparseLightningIndexerGradKLLoss, workspace_size, executor, stream);
  Print("loss", ToHost<float>(loss), 1);
  Print("gradient of the indexer's weights", ToHost<float>(d_weights), kIndexHeads);
  for (DeviceTensor* tensor : {&d_query, &d_key, &d_weights, &loss}) Destroy(*tensor);
}

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);
  {
    Indexer indexer;
    Attention attention;
    Choose(indexer, stream);
    Attend(attention, indexer, stream);
    Differentiate(attention, indexer, stream);
    Teach(attention, indexer, stream);
    for (DeviceTensor* tensor :
         {&indexer.query, &indexer.key, &indexer.weights, &indexer.indices, &indexer.values, &attention.query,
          &attention.query_rope, &attention.key, &attention.key_rope, &attention.out, &attention.max, &attention.sum}) {
      Destroy(*tensor);
    }
  }
  StopDevice(kDevice, stream);
  return 0;
}
