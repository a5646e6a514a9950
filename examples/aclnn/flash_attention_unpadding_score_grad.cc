// Computes the gradients of two packed sequences with ropes: the scores are Q K^T + Qr Kr^T. The statistics are one
// block per sequence.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "device.h"

int main() {
  constexpr int32_t kDevice = 0;
  constexpr int64_t kHeads = 2, kSize = 4, kRopeSize = 2;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const std::vector<int64_t> ends = {2, 5};
  const std::vector<int64_t> shape = {ends.back(), kHeads, kSize};
  const std::vector<int64_t> rope_shape = {ends.back(), kHeads, kRopeSize};
  const std::vector<int64_t> statistics = {ends.back(), kHeads, 8};
  DeviceTensor query = CreateTensor(Wave(ElementsOf(shape), 0.7), shape, ACL_FLOAT);
  DeviceTensor query_rope = CreateTensor(Wave(ElementsOf(rope_shape), 0.5), rope_shape, ACL_FLOAT);
  DeviceTensor key = CreateTensor(Wave(ElementsOf(shape), 1.1), shape, ACL_FLOAT);
  DeviceTensor key_rope = CreateTensor(Wave(ElementsOf(rope_shape), 1.3), rope_shape, ACL_FLOAT);
  DeviceTensor value = CreateTensor(Wave(ElementsOf(shape), 1.9), shape, ACL_FLOAT);
  DeviceTensor mask = CreateTensor(CompressedMask(), {2048, 2048}, ACL_UINT8);
  DeviceTensor max = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor sum = CreateOutput<float>(statistics, ACL_FLOAT);
  DeviceTensor out = CreateOutput<float>(shape, ACL_FLOAT);
  aclIntArray* lengths = aclCreateIntArray(ends.data(), ends.size());

  char layout[] = "TND";
  constexpr double kScale = 0.4, kKeepAll = 1.0;
  constexpr int64_t kAllTokens = 2147483647, kInnerPrecise = 0, kLeftUpCausal = 2, kAddThenScale = 1;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
      query.tensor, query_rope.tensor, key.tensor, key_rope.tensor, value.tensor, nullptr, nullptr, nullptr,
      mask.tensor, nullptr, lengths, lengths, nullptr, nullptr, kScale, kKeepAll, kAllTokens, kAllTokens, kHeads,
      layout, kInnerPrecise, kLeftUpCausal, kAddThenScale, max.tensor, sum.tensor, nullptr, out.tensor, &workspace_size,
      &executor));
  Execute(aclnnFlashAttentionVarLenScoreV3, workspace_size, executor, stream);

  DeviceTensor dy = CreateTensor(Wave(ElementsOf(shape), 0.3), shape, ACL_FLOAT);
  DeviceTensor dq = CreateOutput<float>(shape, ACL_FLOAT);
  DeviceTensor dq_rope = CreateOutput<float>(rope_shape, ACL_FLOAT);
  DeviceTensor dk = CreateOutput<float>(shape, ACL_FLOAT);
  DeviceTensor dk_rope = CreateOutput<float>(rope_shape, ACL_FLOAT);
  DeviceTensor dv = CreateOutput<float>(shape, ACL_FLOAT);
  CHECK(aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
      query.tensor, query_rope.tensor, key.tensor, key_rope.tensor, value.tensor, dy.tensor, nullptr, nullptr, nullptr,
      mask.tensor, max.tensor, sum.tensor, nullptr, out.tensor, nullptr, lengths, lengths, nullptr, nullptr, kScale,
      kKeepAll, kAllTokens, kAllTokens, kHeads, layout, kInnerPrecise, kLeftUpCausal, kAddThenScale, dq.tensor,
      dq_rope.tensor, dk.tensor, dk_rope.tensor, dv.tensor, nullptr, &workspace_size, &executor));
  Execute(aclnnFlashAttentionUnpaddingScoreGradV3, workspace_size, executor, stream);

  Print("attention", ToHost<float>(out), kHeads * kSize);
  Print("dq", ToHost<float>(dq), kHeads * kSize);
  Print("dq_rope", ToHost<float>(dq_rope), kHeads * kRopeSize);
  Print("dk", ToHost<float>(dk), kHeads * kSize);
  Print("dk_rope", ToHost<float>(dk_rope), kHeads * kRopeSize);
  Print("dv", ToHost<float>(dv), kHeads * kSize);

  CHECK(aclDestroyIntArray(lengths));
  for (DeviceTensor* tensor : {&query, &query_rope, &key, &key_rope, &value, &mask, &max, &sum, &out, &dy, &dq,
                               &dq_rope, &dk, &dk_rope, &dv}) {
    Destroy(*tensor);
  }
  StopDevice(kDevice, stream);
  return 0;
}
