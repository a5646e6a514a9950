#ifndef FA_ACLNN_BACKWARD_OPERATION_H_
#define FA_ACLNN_BACKWARD_OPERATION_H_

#include <cstdint>

#include "acl/acl.h"
#include "aclnn/operations/attention_call.h"

namespace fa::aclnn {

/// The tensors of every version of the dense backward. A tensor is null if the version has no such parameter.
struct BackwardTensors {
  const aclTensor* query = nullptr;
  const aclTensor* query_rope = nullptr;
  const aclTensor* key_in = nullptr;
  const aclTensor* key_in_rope = nullptr;
  const aclTensor* value = nullptr;
  const aclTensor* dy = nullptr;
  const aclTensor* pse_shift = nullptr;
  const aclTensor* drop_mask = nullptr;
  const aclTensor* padding_mask = nullptr;
  const aclTensor* atten_mask = nullptr;
  const aclTensor* softmax_max = nullptr;
  const aclTensor* softmax_sum = nullptr;
  const aclTensor* softmax_in = nullptr;
  const aclTensor* attention_in = nullptr;
  const aclTensor* sink_in = nullptr;
  const aclTensor* dq_out = nullptr;
  const aclTensor* dq_rope_out = nullptr;
  const aclTensor* dk_out = nullptr;
  const aclTensor* dk_rope_out = nullptr;
  const aclTensor* dv_out = nullptr;
  const aclTensor* dpse_out = nullptr;
  const aclTensor* dsink_out = nullptr;
};

/// Does the first phase of every version.
[[nodiscard]] aclnnStatus PrepareBackward(const BackwardTensors& tensors, const AttentionCall& call,
                                          uint64_t* workspace_size, aclOpExecutor** executor) noexcept;

}  // namespace fa::aclnn

#endif  // FA_ACLNN_BACKWARD_OPERATION_H_
