#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_V2_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_V2_H_

/// aclnnSparseFlashAttention (aclnn_sparse_flash_attention.h) with sinks.
///
/// sinks is null or float [N1]. It adds one key to every list. The score of that key is the head's sink, and its value
/// is 0. attentionOut, softmaxMaxOut and softmaxSumOut count the sinks. A row whose list is empty has the maximum of
/// its sink and the sum 1, unless its sequence has no key.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTable, const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKv,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclTensor* sinks, double scaleValue,
    int64_t sparseBlockSize, char* layoutQuery, char* layoutKv, int64_t sparseMode, int64_t preTokens,
    int64_t nextTokens, int64_t attentionMode, bool returnSoftmaxLse, const aclTensor* attentionOutOut,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionV2(void* workspace, uint64_t workspaceSize,
                                                            aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_V2_H_
