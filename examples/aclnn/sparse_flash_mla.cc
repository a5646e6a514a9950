// A training step of attention over original and compressed keys as in DeepSeek-V4. Each query token reads a window of
// the last original keys and a list of compressed keys, each of which stands for four tokens. Then come the gradients
// and the probabilities of the listed keys, which teach an indexer.
#include "aclnnop/aclnn_sparse_flash_mla.h"
#include "aclnnop/aclnn_sparse_flash_mla_grad.h"
#include "aclnnop/aclnn_sparse_flash_mla_metadata.h"
#include "device.h"

namespace {

constexpr int64_t kBatch = 1, kQueries = 4, kKeys = 12, kHeads = 2, kSize = 8;
constexpr int64_t kRatio = 4, kCompressed = kKeys / kRatio, kSelected = 2;
constexpr int64_t kWindow = 4, kRightDownCausal = 3, kTopkValueMode = 1, kMetadata = 1024;
constexpr double kScale = 0.5;
char layout[] = "BSND";

// The device takes 16-bit types only. This library also takes float, whose results print the same on every CPU.
DeviceTensor Input(const std::vector<int64_t>& shape, double frequency) {
  return CreateTensor(Wave(ElementsOf(shape), frequency), shape, ACL_FLOAT);
}
DeviceTensor Output(const std::vector<int64_t>& shape) { return CreateOutput<float>(shape, ACL_FLOAT); }

struct Attention {
  DeviceTensor query = Input({kBatch, kQueries, kHeads, kSize}, 0.7);
  DeviceTensor original = Input({kBatch, kKeys, 1, kSize}, 1.1);
  DeviceTensor compressed = Input({kBatch, kCompressed, 1, kSize}, 0.57);
  // A list ends at its first -1. The last token sees all three compressed keys, and chooses two of them.
  DeviceTensor lists =
      CreateTensor(std::vector<int32_t>{0, 1, 1, -1, 0, 1, 2, 0}, {kBatch, kQueries, 1, kSelected}, ACL_INT32);
  DeviceTensor sinks = CreateTensor(std::vector<float>{0.25F, -1.0F}, {kHeads}, ACL_FLOAT);
  DeviceTensor metadata = CreateOutput<int32_t>({kMetadata}, ACL_INT32);
  DeviceTensor out = Output({kBatch, kQueries, kHeads, kSize});
  DeviceTensor lse = Output({kBatch, 1, kQueries, kHeads});
};

// Asks how the work is split. A program for the device must make this call before the attention.
void Split(const Attention& attention, aclrtStream stream) {
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseFlashMlaMetadataGetWorkspaceSize(
      nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kHeads, 1, kSize, kBatch,
      kQueries, kKeys, kCompressed, 0, kSelected, kRatio, 4, kRightDownCausal, kWindow - 1, 0, layout, layout, true,
      true, attention.metadata.tensor, &workspace_size, &executor));
  Execute(aclnnSparseFlashMlaMetadata, workspace_size, executor, stream);
}

void Attend(const Attention& attention, aclrtStream stream) {
  constexpr int64_t kBand = 4;
  constexpr bool kReturnLse = true;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseFlashMlaGetWorkspaceSize(
      attention.query.tensor, attention.original.tensor, attention.compressed.tensor, nullptr, attention.lists.tensor,
      nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
      attention.sinks.tensor, attention.metadata.tensor, kScale, kRatio, kBand, kRightDownCausal, kWindow - 1, 0,
      layout, layout, kTopkValueMode, kReturnLse, attention.out.tensor, attention.lse.tensor, &workspace_size,
      &executor));
  Execute(aclnnSparseFlashMla, workspace_size, executor, stream);
  Print("attention", ToHost<float>(attention.out), kSize);
  Print("log of the sum of exp(score)", ToHost<float>(attention.lse), kHeads);
}

// Computes the gradients of the sum of all outputs.
void Differentiate(const Attention& attention, aclrtStream stream) {
  const std::vector<int64_t> shape = {kBatch, kQueries, kHeads, kSize};
  DeviceTensor d_out = CreateTensor(std::vector<float>(static_cast<size_t>(ElementsOf(shape)), 1.0F), shape, ACL_FLOAT);
  DeviceTensor d_query = Output(shape);
  DeviceTensor d_original = Output({kBatch, kKeys, 1, kSize});
  DeviceTensor d_compressed = Output({kBatch, kCompressed, 1, kSize});
  DeviceTensor d_sinks = Output({kHeads});
  DeviceTensor l1_norm = Output({kBatch, kQueries, 1, kSelected});
  constexpr int64_t kBand = 4;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnSparseFlashMlaGradGetWorkspaceSize(
      attention.query.tensor, d_out.tensor, attention.out.tensor, attention.lse.tensor, attention.original.tensor,
      attention.compressed.tensor, nullptr, attention.lists.tensor, nullptr, nullptr, nullptr, nullptr, nullptr,
      nullptr, nullptr, nullptr, nullptr, attention.sinks.tensor, nullptr, kScale, kRatio, kBand, kRightDownCausal,
      kWindow - 1, 0, layout, layout, d_query.tensor, d_original.tensor, d_compressed.tensor, d_sinks.tensor, nullptr,
      l1_norm.tensor, &workspace_size, &executor));
  Execute(aclnnSparseFlashMlaGrad, workspace_size, executor, stream);
  Print("gradient of the compressed keys", ToHost<float>(d_compressed), kSize);
  Print("gradient of the sinks", ToHost<float>(d_sinks), kHeads);
  Print("mean probabilities of the listed keys", ToHost<float>(l1_norm), kSelected);
  for (DeviceTensor* tensor : {&d_out, &d_query, &d_original, &d_compressed, &d_sinks, &l1_norm}) Destroy(*tensor);
}

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);
  {
    Attention attention;
    Split(attention, stream);
    Attend(attention, stream);
    Differentiate(attention, stream);
    for (DeviceTensor* tensor : {&attention.query, &attention.original, &attention.compressed, &attention.lists,
                                 &attention.sinks, &attention.metadata, &attention.out, &attention.lse}) {
      Destroy(*tensor);
    }
  }
  StopDevice(kDevice, stream);
  return 0;
}
