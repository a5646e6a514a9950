#ifndef FA_ACLNN_FORWARD_OPERATION_H_
#define FA_ACLNN_FORWARD_OPERATION_H_

#include <cstdint>

#include "acl/acl.h"
#include "aclnn/operations/attention_call.h"

namespace fa::aclnn {

/// The tensors of every version of the dense forward. A tensor is null if the version has no such parameter.
struct ForwardTensors {
  const aclTensor* query = nullptr;
  const aclTensor* query_rope = nullptr;
  const aclTensor* key = nullptr;
  const aclTensor* key_rope = nullptr;
  const aclTensor* value = nullptr;
  const aclTensor* real_shift = nullptr;
  const aclTensor* drop_mask = nullptr;
  const aclTensor* padding_mask = nullptr;
  const aclTensor* atten_mask = nullptr;
  const aclTensor* sink = nullptr;
  const aclTensor* softmax_max_out = nullptr;
  const aclTensor* softmax_sum_out = nullptr;
  const aclTensor* softmax_out_out = nullptr;
  const aclTensor* attention_out_out = nullptr;
};

/// Does the first phase of every version.
[[nodiscard]] aclnnStatus PrepareForward(const ForwardTensors& tensors, const AttentionCall& call,
                                         uint64_t* workspace_size, aclOpExecutor** executor) noexcept;

}  // namespace fa::aclnn

#endif  // FA_ACLNN_FORWARD_OPERATION_H_
