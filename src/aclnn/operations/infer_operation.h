#ifndef FA_ACLNN_INFER_OPERATION_H_
#define FA_ACLNN_INFER_OPERATION_H_

#include <cstdint>

#include "acl/acl.h"

namespace fa::aclnn {

/// The tensors and arrays of every version of fused inference. A member is null if the version lacks it. Outputs come
/// first. The parameters follow in the order of the versions that added them.
struct InferTensors {
  const aclTensor* attention_out = nullptr;
  const aclTensor* softmax_lse = nullptr;
  const aclTensor* query = nullptr;
  const aclTensorList* key = nullptr;
  const aclTensorList* value = nullptr;
  const aclTensor* pse_shift = nullptr;
  const aclTensor* atten_mask = nullptr;
  const aclIntArray* actual_seq_lengths = nullptr;
  const aclIntArray* actual_seq_lengths_kv = nullptr;
  const aclTensor* deq_scale1 = nullptr;
  const aclTensor* quant_scale1 = nullptr;
  const aclTensor* deq_scale2 = nullptr;
  const aclTensor* quant_scale2 = nullptr;
  const aclTensor* quant_offset2 = nullptr;
  const aclTensor* antiquant_scale = nullptr;
  const aclTensor* antiquant_offset = nullptr;
  const aclTensor* block_table = nullptr;
  const aclTensor* query_padding_size = nullptr;
  const aclTensor* kv_padding_size = nullptr;
  const aclTensor* key_antiquant_scale = nullptr;
  const aclTensor* key_antiquant_offset = nullptr;
  const aclTensor* value_antiquant_scale = nullptr;
  const aclTensor* value_antiquant_offset = nullptr;
  const aclTensor* key_shared_prefix = nullptr;
  const aclTensor* value_shared_prefix = nullptr;
  const aclIntArray* actual_shared_prefix_len = nullptr;
  const aclTensor* query_rope = nullptr;
  const aclTensor* key_rope = nullptr;
  const aclTensor* key_rope_antiquant_scale = nullptr;
  const aclTensor* dequant_scale_query = nullptr;
  const aclTensor* learnable_sink = nullptr;
  const aclIntArray* q_start_idx = nullptr;
  const aclIntArray* kv_start_idx = nullptr;
};

/// The other parameters. If a version lacks a parameter, its member keeps the default.
struct InferCall {
  int64_t num_heads = 0;
  double scale_value = 1;
  int64_t pre_tokens = 0, next_tokens = 0;
  const char* input_layout = nullptr;
  int64_t num_key_value_heads = 0;
  int64_t sparse_mode = 0;
  int64_t block_size = 0;
  int64_t antiquant_mode = 0;
  bool softmax_lse_flag = false;
  int64_t key_antiquant_mode = 0, value_antiquant_mode = 0;
  int64_t query_quant_mode = 0;
  int64_t pse_type = 0;
};

/// The calls for which the workspace that the first phase reports must suffice.
enum class InferWorkspace : uint8_t {
  kOfTheseLengths,  ///< this call
  kOfAnyLengths,    ///< all calls that differ only in the values in the arrays of lengths
};

/// Does the first phase of every version.
[[nodiscard]] aclnnStatus PrepareInfer(const InferTensors& tensors, const InferCall& call, InferWorkspace workspace,
                                       uint64_t* workspace_size, aclOpExecutor** executor) noexcept;

}  // namespace fa::aclnn

#endif  // FA_ACLNN_INFER_OPERATION_H_
