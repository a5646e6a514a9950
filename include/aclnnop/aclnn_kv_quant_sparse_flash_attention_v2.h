#ifndef FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_V2_H_
#define FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_V2_H_

/// aclnnKvQuantSparseFlashAttention (aclnn_kv_quant_sparse_flash_attention.h) with sinks.
///
/// sinksOptional is null or float [N1]. It adds one key to every list. The score of that key is the head's sink, and
/// its value is 0.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnKvQuantSparseFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* keyDequantScaleOptional, const aclTensor* valueDequantScaleOptional,
    const aclTensor* blockTableOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, const aclTensor* sinksOptional, double scaleValue,
    int64_t keyQuantMode, int64_t valueQuantMode, int64_t sparseBlockSize, char* layoutQuery, char* layoutKv,
    int64_t sparseMode, int64_t preTokens, int64_t nextTokens, int64_t attentionMode, int64_t quantScaleRepoMode,
    int64_t tileSize, int64_t ropeHeadDim, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnKvQuantSparseFlashAttentionV2(void* workspace, uint64_t workspaceSize,
                                                                   aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_V2_H_
