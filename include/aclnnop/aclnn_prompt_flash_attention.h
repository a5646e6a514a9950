#ifndef FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_H_

/// Prompt attention, the forward of inference: attentionOut = softmax(mask(scaleValue * query key^T)) value.
///
/// inputLayout is "BSH", "BSND", "BNSD", "BNSD_BSND" (BNSD in, BSND out) or "TND". query, key and value are float,
/// float16, bfloat16 or int8. numKeyValueHeads 0 means numHeads. pseShift is ignored; V3 uses it.
///
/// - attenMask: 1 = drop, [>= Sq, >= Skv], [B|1, >= Sq, >= Skv] or [B|1, 1, >= Sq, >= Skv]. Null means no mask; then
///   preTokens and nextTokens are ignored.
/// - actualSeqLengths is the number of rows in use per batch element, or one number for all elements. Entries past the
///   batch are ignored. Null or empty stands for Sq. With TND it holds inclusive prefix sums. Rows past the length are
///   written 0.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
/// docs/aclnn.md says what is the same as on the device. fa/prompt_flash_attention.h says what is computed.
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
