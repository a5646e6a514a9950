#ifndef FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_H_

/// Attention of few query rows against long keys: attentionOut = softmax(mask(scale * query key^T + pseShift)) value.
///
/// inputLayout is "BNSD", "BSND" or "BSH". query and attentionOut are float, float16 or bfloat16, with any strides. key
/// and value are lists, of one tensor, or of one tensor per batch element, each with batch size 1 and its own length.
/// numKeyValueHeads 0 means numHeads.
///
/// Optional tensors:
/// - pseShift [B|1,N,1,S], of the type of query or float;
/// - attenMask [B,S], [B,1,S] or [B,1,1,S], 1 = drop;
/// - actualSeqLengths, the number of keys per batch element, or one number for all elements.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
/// docs/aclnn.md says what is the same as on the device. fa/decode_attention.h says what is computed.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, int64_t numHeads, double scaleValue,
    char* inputLayout, int64_t numKeyValueHeads, const aclTensor* attentionOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttention(void* workspace, uint64_t workspaceSize,
                                                         aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_H_
