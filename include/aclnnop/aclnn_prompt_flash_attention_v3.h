#ifndef FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V3_H_
#define FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V3_H_

/// aclnnPromptFlashAttentionV2 with pseShift, [B|1, numHeads, >= Sq, >= Skv], which is added to the scaled score.
/// innerPrecise is ignored: the softmax is always in float, and rows without keys are 0.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttentionV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
    const aclTensor* attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnPromptFlashAttentionV3(void* workspace, uint64_t workspaceSize,
                                                            aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_PROMPT_FLASH_ATTENTION_V3_H_
