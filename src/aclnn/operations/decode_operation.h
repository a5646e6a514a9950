#ifndef FA_ACLNN_DECODE_OPERATION_H_
#define FA_ACLNN_DECODE_OPERATION_H_

#include <cstdint>

#include "acl/acl.h"

namespace fa::aclnn {

/// The tensors of every version of the decode. A tensor is null if the version has no such parameter.
struct DecodeTensors {
  const aclTensor* query = nullptr;
  const aclTensorList* key = nullptr;
  const aclTensorList* value = nullptr;
  const aclTensor* pse_shift = nullptr;
  const aclTensor* atten_mask = nullptr;
  const aclTensor* dequant_scale1 = nullptr;
  const aclTensor* quant_scale1 = nullptr;
  const aclTensor* dequant_scale2 = nullptr;
  const aclTensor* quant_scale2 = nullptr;
  const aclTensor* quant_offset2 = nullptr;
  const aclTensor* antiquant_scale = nullptr;
  const aclTensor* antiquant_offset = nullptr;
  const aclTensor* block_table = nullptr;
  const aclTensor* kv_padding_size = nullptr;
  const aclTensor* attention_out = nullptr;
};

/// The operator's parameters other than tensors.
struct DecodeCall {
  const aclIntArray* actual_seq_lengths = nullptr;
  int64_t num_heads = 0;
  double scale_value = 1;
  const char* input_layout = nullptr;
  int64_t num_key_value_heads = 0;
  int64_t block_size = 0;
  bool has_antiquant_scale = false;  ///< whether the version has the parameter antiquantScale
};

/// Does the first phase of every version.
[[nodiscard]] aclnnStatus PrepareDecode(const DecodeTensors& tensors, const DecodeCall& call, uint64_t* workspace_size,
                                        aclOpExecutor** executor) noexcept;

}  // namespace fa::aclnn

#endif  // FA_ACLNN_DECODE_OPERATION_H_
