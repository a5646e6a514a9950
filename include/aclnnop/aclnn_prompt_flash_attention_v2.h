#ifndef FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V2_H_
#define FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V2_H_

/// aclnnPromptFlashAttention with lengths of the keys, int8 tensors and sparseMode 0 to 4. fa/prompt_flash_attention.h
/// says which types need which scales. sparseMode 2, 3 and 4 need the compressed [2048,2048] attenMask. pseShift is
/// ignored.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttentionV2(void* workspace, uint64_t workspaceSize,
                                                            aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V2_H_
