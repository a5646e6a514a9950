#ifndef FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_H_

/// Prompt attention, the forward of inference: attentionOut = softmax(mask(scaleValue * query key^T)) value.
///
/// inputLayout "BSH", "BSND", "BNSD", "BNSD_BSND" (BNSD in, BSND out) or "TND". query, key, value: float, float16,
/// bfloat16 or int8. numKeyValueHeads 0 means numHeads. pseShift is not looked at: V3 honours it. attenMask: 1 = drop,
/// [>= Sq, >= Skv], [B|1, >= Sq, >= Skv] or [B|1, 1, >= Sq, >= Skv]; null: no mask, preTokens and nextTokens mean
/// nothing. actualSeqLengths: rows in use of each batch element, one entry for all, null or empty: Sq; TND: inclusive
/// prefix sums. Rows past them are written 0.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/aclnn.md says what is the same as on the device; fa/prompt_flash_attention.h what is computed.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, int64_t numHeads, double scaleValue,
    int64_t preTokens, int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttention(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_H_
