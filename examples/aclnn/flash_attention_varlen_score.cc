// Two packed sequences of bfloat16 with one sink per head. The mask is causal: the last query of each sequence sees its
// last key.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kHeads = 2, kSize = 4;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  // There are 2 and 3 queries and 2 and 5 keys. The lengths are given as inclusive prefix sums.
  const std::vector<int64_t> q_ends = {2, 5};
  const std::vector<int64_t> kv_ends = {2, 7};
  const std::vector<int64_t> q_shape = {q_ends.back(), kHeads, kSize};
  const std::vector<int64_t> kv_shape = {kv_ends.back(), kHeads, kSize};
  const std::vector<int64_t> statistics = {q_ends.back(), kHeads, 8};
  DeviceTensor query = CreateTensor(ToBf16(Wave(ElementsOf(q_shape), 0.7)), q_shape, ACL_BF16);
  DeviceTensor key = CreateTensor(ToBf16(Wave(ElementsOf(kv_shape), 1.1)), kv_shape, ACL_BF16);
  DeviceTensor value = CreateTensor(ToBf16(Wave(ElementsOf(kv_shape), 1.9)), kv_shape, ACL_BF16);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_BOOL);
  DeviceTensor sink = CreateTensor(std::vector<float>{0.25F, -1.0F}, {kHeads}, ACL_FLOAT);
  DeviceTensor max = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor sum = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor out = CreateOutput<uint16_t>(q_shape, ACL_BF16);
  aclIntArray* q_lengths = aclCreateIntArray(q_ends.data(), q_ends.size());
  aclIntArray* kv_lengths = aclCreateIntArray(kv_ends.data(), kv_ends.size());

  char layout[] = "TND";
  char softmax_layout[] = "same_as_input";
  constexpr double kScale = 0.5, kKeepAll = 1.0;
  constexpr int64_t kAllTokens = 2147483647, kInnerPrecise = 0, kRightDownCausal = 3, kAddThenScale = 1;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(
      query.tensor, nullptr, key.tensor, nullptr, value.tensor, nullptr, nullptr, nullptr, mask.tensor, sink.tensor,
      nullptr, q_lengths, kv_lengths, nullptr, nullptr, kScale, kKeepAll, kAllTokens, kAllTokens, kHeads, layout,
      kInnerPrecise, kRightDownCausal, kAddThenScale, softmax_layout, max.tensor, sum.tensor, nullptr, out.tensor,
      &workspace_size, &executor));
  Execute(aclnnFlashAttentionVarLenScoreV5, workspace_size, executor, stream);

  // A bfloat16 has two to three significant digits.
  const std::vector<float> attention = FromBf16(ToHost<uint16_t>(out));
  std::printf("attention\n");
  for (size_t i = 0; i < attention.size(); ++i) {
    std::printf("%6.2f%c", static_cast<double>(attention[i]), (i + 1) % (kHeads * kSize) == 0 ? '\n' : ' ');
  }
  Print("max", FirstOfEight(ToHost<float>(max)), kHeads);
  Print("sum", FirstOfEight(ToHost<float>(sum)), kHeads);

  CHECK(aclDestroyIntArray(q_lengths));
  CHECK(aclDestroyIntArray(kv_lengths));
  for (DeviceTensor* tensor : {&query, &key, &value, &mask, &sink, &max, &sum, &out}) Destroy(*tensor);
  StopDevice(kDevice, stream);
  return 0;
}
