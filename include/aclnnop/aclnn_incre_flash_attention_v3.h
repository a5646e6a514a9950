#ifndef FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V3_H_
#define FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V3_H_

/// aclnnIncreFlashAttentionV2 with two additions. Keys and values may be int8 or int4 if the query is float, float16 or
/// bfloat16. Keys and values may lie in pages.
///
/// int4 keys and values are int32 with eight numbers per element, the first in the lowest bits. The last dimension then
/// has an eighth of the columns. An int8 or int4 key or value x stands for (x + antiquantOffset) * antiquantScale.
/// antiquantScale and antiquantOffset have one number for key and one for value: [2]. Or they have one number per
/// column: [2,Nkv,1,D] (BNSD), [2,Nkv,D] (BSND) or [2,H] (BSH). Entry 0 of the first dimension is for key, entry 1 for
/// value.
///
/// For keys in pages, blocktable is int32 [B,n], and key and value are one tensor each, [pages, blockSize, H]. With
/// BNSD and BSND the tensor may also be [pages, Nkv, blockSize, D]. With BSND it may also be [pages, blockSize, Nkv, D]
/// if its sizes fit only this form. Pages need actualSeqLengths. The entries in use are checked when the stream reaches
/// the operator. innerPrecise is ignored.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV3GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, int64_t numHeads, double scaleValue, char* inputLayout, int64_t numKeyValueHeads,
    int64_t blockSize, int64_t innerPrecise, const aclTensor* attentionOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnIncreFlashAttentionV3(void* workspace, uint64_t workspaceSize,
                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V3_H_
