#include "aclnn/calls/face_call.h"

#include <map>

#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

namespace fa::test {
namespace {

// The interface takes its strings as char*, and does not write to them.
char* Text(const std::string& text) { return const_cast<char*>(text.c_str()); }

std::vector<uint8_t> MakeCompressedMask(bool with_prefix) {
  constexpr size_t kSide = 2048;
  std::vector<uint8_t> mask((with_prefix ? kSide + 1024 : kSide) * kSide, 0);
  for (size_t i = 0; i < kSide; ++i) {
    for (size_t j = i + 1; j < kSide; ++j) mask[i * kSide + j] = 1;
  }
  for (size_t i = kSide; i * kSide < mask.size(); ++i) {
    for (size_t j = kSide / 2; j < kSide; ++j) mask[i * kSide + j] = 1;
  }
  return mask;
}

}  // namespace

Handles::~Handles() {
  for (const aclTensor* tensor : tensors_) aclDestroyTensor(tensor);
  for (const aclIntArray* array : arrays_) aclDestroyIntArray(array);
  for (void* memory : memory_) aclrtFree(memory);
}

aclTensor* Handles::Tensor(const TensorView& view) {
  if (view.data == nullptr) return nullptr;
  const int64_t* stride = view.stride.empty() ? nullptr : view.stride.begin();
  const auto rank = static_cast<uint64_t>(view.shape.rank());
  tensors_.push_back(aclCreateTensor(view.shape.begin(), rank, AclTypeOf(view.dtype), stride, 0, ACL_FORMAT_ND,
                                     view.shape.begin(), rank, const_cast<void*>(view.data)));
  return tensors_.back();
}

aclTensor* Handles::Tensor(void* data, aclDataType dtype, const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  // Sizes that exceed all memory make the strides wrap around.
  for (size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = static_cast<int64_t>(static_cast<uint64_t>(shape[i]) * static_cast<uint64_t>(strides[i]));
  }
  tensors_.push_back(aclCreateTensor(shape.data(), shape.size(), dtype, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                                     shape.size(), data));
  return tensors_.back();
}

aclIntArray* Handles::Array(const std::vector<int64_t>& values) {
  arrays_.push_back(aclCreateIntArray(values.data(), values.size()));
  return arrays_.back();
}

void* Handles::Memory(size_t bytes) {
  void* memory = nullptr;
  aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  memory_.push_back(memory);
  return memory;
}

aclDataType AclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ACL_FLOAT;
    case DType::kF16: return ACL_FLOAT16;
    case DType::kBF16: return ACL_BF16;
    case DType::kI8: return ACL_INT8;
    case DType::kU8: return ACL_UINT8;
    case DType::kBool: return ACL_BOOL;
    case DType::kI4x8:  // the device's form of int4 keys
    case DType::kI32: return ACL_INT32;
    case DType::kI64: return ACL_INT64;
    case DType::kU64: return ACL_UINT64;
    case DType::kF8E4M3: return ACL_FLOAT8_E4M3FN;
    case DType::kF8E5M2: break;
  }
  return ACL_DT_UNDEFINED;
}

const std::vector<uint8_t>& CompressedMask(int64_t sparse_mode) {
  static const std::vector<uint8_t> triangle = MakeCompressedMask(false);
  static const std::vector<uint8_t> prefix = MakeCompressedMask(true);
  return sparse_mode == 6 ? prefix : triangle;
}

const char* Name(ForwardVersion version) {
  static constexpr const char* kNames[] = {"Score",    "ScoreV2",  "ScoreV3",  "ScoreV4", "VarLen",
                                           "VarLenV2", "VarLenV3", "VarLenV4", "VarLenV5"};
  return kNames[static_cast<size_t>(version)];
}

const char* Name(BackwardVersion version) {
  static constexpr const char* kNames[] = {"Grad",        "GradV2",      "GradV3",      "GradV4",     "Unpadding",
                                           "UnpaddingV2", "UnpaddingV3", "UnpaddingV4", "UnpaddingV5"};
  return kNames[static_cast<size_t>(version)];
}

aclnnStatus GetWorkspaceSize(ForwardVersion version, const ForwardParameters& p, uint64_t* size,
                             aclOpExecutor** executor) {
  switch (version) {
    case ForwardVersion::kScore:
      return aclnnFlashAttentionScoreGetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix, p.scale, p.keep_prob,
          p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.softmax_max, p.softmax_sum,
          p.softmax_out, p.out, size, executor);
    case ForwardVersion::kScoreV2:
      return aclnnFlashAttentionScoreV2GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix, p.q_start, p.kv_start,
          p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type,
          p.softmax_max, p.softmax_sum, p.softmax_out, p.out, size, executor);
    case ForwardVersion::kScoreV3:
      return aclnnFlashAttentionScoreV3GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.sink, p.prefix, p.q_start,
          p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode,
          p.pse_type, p.softmax_max, p.softmax_sum, p.softmax_out, p.out, size, executor);
    case ForwardVersion::kScoreV4:
      return aclnnFlashAttentionScoreV4GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.query_rope, p.key_rope,
          p.scales[0], p.scales[1], p.scales[2], p.sink, p.prefix, p.q_lengths, p.kv_lengths, p.q_start, p.kv_start,
          p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.out_dtype,
          p.pse_type, Text(p.softmax_layout), p.seed, p.offset, p.softmax_max, p.softmax_sum, p.softmax_out, p.out,
          size, executor);
    case ForwardVersion::kVarLen:
      return aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix, p.q_lengths,
          p.kv_lengths, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode,
          p.softmax_max, p.softmax_sum, p.softmax_out, p.out, size, executor);
    case ForwardVersion::kVarLenV2:
      return aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix, p.q_lengths,
          p.kv_lengths, p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout),
          p.inner_precise, p.sparse_mode, p.pse_type, p.softmax_max, p.softmax_sum, p.softmax_out, p.out, size,
          executor);
    case ForwardVersion::kVarLenV3:
      return aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
          p.query, p.query_rope, p.key, p.key_rope, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix,
          p.q_lengths, p.kv_lengths, p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads,
          Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type, p.softmax_max, p.softmax_sum, p.softmax_out,
          p.out, size, executor);
    case ForwardVersion::kVarLenV4:
      return aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.prefix, p.q_lengths,
          p.kv_lengths, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode,
          Text(p.softmax_layout), p.softmax_max, p.softmax_sum, p.softmax_out, p.out, size, executor);
    case ForwardVersion::kVarLenV5:
      return aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(
          p.query, p.query_rope, p.key, p.key_rope, p.value, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.sink,
          p.prefix, p.q_lengths, p.kv_lengths, p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads,
          Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type, Text(p.softmax_layout), p.softmax_max,
          p.softmax_sum, p.softmax_out, p.out, size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(ForwardVersion version, void* workspace, uint64_t size, aclOpExecutor* executor,
                    aclrtStream stream) {
  switch (version) {
    case ForwardVersion::kScore: return aclnnFlashAttentionScore(workspace, size, executor, stream);
    case ForwardVersion::kScoreV2: return aclnnFlashAttentionScoreV2(workspace, size, executor, stream);
    case ForwardVersion::kScoreV3: return aclnnFlashAttentionScoreV3(workspace, size, executor, stream);
    case ForwardVersion::kScoreV4: return aclnnFlashAttentionScoreV4(workspace, size, executor, stream);
    case ForwardVersion::kVarLen: return aclnnFlashAttentionVarLenScore(workspace, size, executor, stream);
    case ForwardVersion::kVarLenV2: return aclnnFlashAttentionVarLenScoreV2(workspace, size, executor, stream);
    case ForwardVersion::kVarLenV3: return aclnnFlashAttentionVarLenScoreV3(workspace, size, executor, stream);
    case ForwardVersion::kVarLenV4: return aclnnFlashAttentionVarLenScoreV4(workspace, size, executor, stream);
    case ForwardVersion::kVarLenV5: return aclnnFlashAttentionVarLenScoreV5(workspace, size, executor, stream);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus GetWorkspaceSize(BackwardVersion version, const BackwardParameters& p, uint64_t* size,
                             aclOpExecutor** executor) {
  switch (version) {
    case BackwardVersion::kGrad:
      return aclnnFlashAttentionScoreGradGetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.prefix, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout),
          p.inner_precise, p.sparse_mode, p.dq, p.dk, p.dv, p.dpse, size, executor);
    case BackwardVersion::kGradV2:
      return aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.prefix, p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads,
          Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type, p.dq, p.dk, p.dv, p.dpse, size, executor);
    case BackwardVersion::kGradV3:
      return aclnnFlashAttentionScoreGradV3GetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.sink, p.prefix, p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next,
          p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type, p.dq, p.dk, p.dv, p.dpse, p.dsink, size,
          executor);
    case BackwardVersion::kGradV4:
      return aclnnFlashAttentionScoreGradV4GetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.sink, p.query_rope, p.key_rope, p.scales[0], p.scales[1], p.scales[2],
          p.scales[3], p.scales[4], p.prefix, p.q_lengths, p.kv_lengths, p.q_start, p.kv_start, p.scale, p.keep_prob,
          p.pre, p.next, p.heads, Text(p.layout), Text(p.softmax_layout), p.inner_precise, p.sparse_mode, p.pse_type,
          p.seed, p.offset, p.out_dtype, p.dq, p.dk, p.dv, p.dq_rope, p.dk_rope, p.dpse, p.dsink, size, executor);
    case BackwardVersion::kUnpadding:
      return aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.prefix, p.q_lengths, p.kv_lengths, p.scale, p.keep_prob, p.pre, p.next,
          p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.dq, p.dk, p.dv, p.dpse, size, executor);
    case BackwardVersion::kUnpaddingV2:
      return aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.prefix, p.q_lengths, p.kv_lengths, p.q_start, p.kv_start, p.scale,
          p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.pse_type, p.dq, p.dk,
          p.dv, p.dpse, size, executor);
    case BackwardVersion::kUnpaddingV3:
      return aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
          p.query, p.query_rope, p.key, p.key_rope, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask,
          p.softmax_max, p.softmax_sum, p.softmax_in, p.attention_in, p.prefix, p.q_lengths, p.kv_lengths, p.q_start,
          p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise, p.sparse_mode,
          p.pse_type, p.dq, p.dq_rope, p.dk, p.dk_rope, p.dv, p.dpse, size, executor);
    case BackwardVersion::kUnpaddingV4:
      return aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
          p.query, p.key, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask, p.softmax_max, p.softmax_sum,
          p.softmax_in, p.attention_in, p.prefix, p.q_lengths, p.kv_lengths, p.scale, p.keep_prob, p.pre, p.next,
          p.heads, Text(p.layout), p.inner_precise, p.sparse_mode, p.dq, p.dk, p.dv, p.dpse, Text(p.softmax_layout),
          size, executor);
    case BackwardVersion::kUnpaddingV5:
      return aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(
          p.query, p.query_rope, p.key, p.key_rope, p.value, p.dy, p.pse, p.drop_mask, p.padding_mask, p.atten_mask,
          p.softmax_max, p.softmax_sum, p.softmax_in, p.attention_in, p.sink, p.prefix, p.q_lengths, p.kv_lengths,
          p.q_start, p.kv_start, p.scale, p.keep_prob, p.pre, p.next, p.heads, Text(p.layout), p.inner_precise,
          p.sparse_mode, p.pse_type, Text(p.softmax_layout), p.dq, p.dq_rope, p.dk, p.dk_rope, p.dv, p.dpse, p.dsink,
          size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(BackwardVersion version, void* workspace, uint64_t size, aclOpExecutor* executor,
                    aclrtStream stream) {
  switch (version) {
    case BackwardVersion::kGrad: return aclnnFlashAttentionScoreGrad(workspace, size, executor, stream);
    case BackwardVersion::kGradV2: return aclnnFlashAttentionScoreGradV2(workspace, size, executor, stream);
    case BackwardVersion::kGradV3: return aclnnFlashAttentionScoreGradV3(workspace, size, executor, stream);
    case BackwardVersion::kGradV4: return aclnnFlashAttentionScoreGradV4(workspace, size, executor, stream);
    case BackwardVersion::kUnpadding: return aclnnFlashAttentionUnpaddingScoreGrad(workspace, size, executor, stream);
    case BackwardVersion::kUnpaddingV2:
      return aclnnFlashAttentionUnpaddingScoreGradV2(workspace, size, executor, stream);
    case BackwardVersion::kUnpaddingV3:
      return aclnnFlashAttentionUnpaddingScoreGradV3(workspace, size, executor, stream);
    case BackwardVersion::kUnpaddingV4:
      return aclnnFlashAttentionUnpaddingScoreGradV4(workspace, size, executor, stream);
    case BackwardVersion::kUnpaddingV5:
      return aclnnFlashAttentionUnpaddingScoreGradV5(workspace, size, executor, stream);
  }
  return ACLNN_ERR_INNER;
}

}  // namespace fa::test
