#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_V2_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_V2_H_

/// aclnnSparseFlashAttentionGrad (aclnn_sparse_flash_attention_grad.h) with the sinks of
/// aclnn_sparse_flash_attention_v2.h.
///
/// sinksOptional and dSinksOutOptional, float [N1], are both given or both null. dSinks of a head is the sum over the
/// rows of -exp(sink - max) / sum * rowsum(dOut * out), added in the order of the tokens.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* dOut, const aclTensor* out, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* sinksOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional,
    double scaleValue, int64_t sparseBlockSize, char* layoutOptional, int64_t sparseMode, int64_t preTokens,
    int64_t nextTokens, bool deterministic, const aclTensor* dQueryOut, const aclTensor* dKeyOut,
    const aclTensor* dValueOut, const aclTensor* dQueryRopeOutOptional, const aclTensor* dKeyRopeOutOptional,
    const aclTensor* dSinksOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGradV2(void* workspace, uint64_t workspaceSize,
                                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_V2_H_
