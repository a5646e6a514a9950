#ifndef FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V3_H_
#define FA_ACLNNOP_ACLNN_INCRE_FLASH_ATTENTION_V3_H_

/// aclnnIncreFlashAttentionV2 with int8 keys and values, which stand for (x + antiquantOffset) * antiquantScale ([2],
/// or [2,Nkv,1,D] for BNSD, [2,Nkv,D] for BSND, [2,H] for BSH: entry 0 for key, 1 for value), and with keys in pages:
/// blocktable int32 [B,n], key and value one tensor [pages, blockSize, H], for BNSD and BSND also
/// [pages, Nkv, blockSize, D], for BSND [pages, blockSize, Nkv, D] where the sizes fit only this; actualSeqLengths is
/// required then. The entries in use are checked when the stream reaches the operator. innerPrecise is not looked at.
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
