#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_

/// Gradients of what aclnn_sparse_flash_attention.h computes, with its arguments; keys do not lie in pages. dOut is the
/// gradient of out, the forward's output; softmaxMax and softmaxSum are the forward's. layoutOptional "BSND" (null too)
/// or "TND".
///
/// value and dValueOut null: dKeyOut holds the gradient of both parts keys play. Keys that no token selects and rows
/// without keys get 0. deterministic is not looked at: the order of the sums is always the same.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/sparse.md says what is the same as on the device; fa/sparse_flash_attention_grad.h what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* dOut, const aclTensor* out, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* actualSeqLengthsQueryOptional, const aclTensor* actualSeqLengthsKvOptional,
    const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional, double scaleValue, int64_t sparseBlockSize,
    char* layoutOptional, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, bool deterministic,
    const aclTensor* dQueryOut, const aclTensor* dKeyOut, const aclTensor* dValueOut,
    const aclTensor* dQueryRopeOutOptional, const aclTensor* dKeyRopeOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGrad(void* workspace, uint64_t workspaceSize,
                                                              aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_
