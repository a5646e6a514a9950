#ifndef FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V4_H_
#define FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V4_H_

/// aclnnIncreFlashAttentionV3 with keys that end kvPaddingSize rows before the end of their tensor. Element b has the
/// keys S - kvPaddingSize - actualSeqLengths[b] to S - kvPaddingSize - 1. kvPaddingSize is int64 [1], which is read
/// when the stream reaches the operator. kvPaddingSize needs actualSeqLengths and excludes pages, pseShift and
/// attenMask.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads, double scaleValue, char* inputLayout,
    int64_t numKeyValueHeads, int64_t blockSize, int64_t innerPrecise, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV4(void* workspace, uint64_t workspaceSize,
                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V4_H_
