#ifndef FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V2_H_
#define FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V2_H_

/// aclnnIncreFlashAttention (aclnn_incre_flash_attention.h) with int8 tensors.
///
/// An int8 attentionOut has a scale and an offset, quantScale2 and quantOffset2, with one element or N * D elements. An
/// int8 query has int8 keys and values without antiquantScale. It needs dequantScale1, quantScale1 and dequantScale2,
/// with one element each. aclnn_prompt_flash_attention_v2.h calls these scales deqScale1, quantScale1 and deqScale2.
/// The result of an int8 query is float16 or, with quantScale2, int8. A query of another type refuses these three
/// scales.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, char* inputLayout, int64_t numKeyValueHeads,
    const aclTensor* attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV2(void* workspace, uint64_t workspaceSize,
                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V2_H_
