#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_GRAD_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_GRAD_H_

/// Gradients of the values of aclnn_lightning_indexer.h, with its arguments; keys do not lie in pages. dy is the
/// gradient of the values, [B,S1,1,K] or [B,S1,K] (TND [T1,1,K], [T1,K]), query's type or float; sparseIndices, int32
/// or int64, are those of the forward; a row ends at its first -1. inputLayout "BSND" or "TND".
///
/// Rows without keys, and keys that no row selects, get 0. headNum and deterministic are not looked at: the order of
/// the sums is always the same.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/sparse.md says what is the same as on the device; fa/lightning_indexer_grad.h what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* dy, const aclTensor* sparseIndices,
    const aclTensor* weights, const aclTensor* actualSeqQLenOptional, const aclTensor* actualSeqKvLenOptional,
    int64_t headNum, char* inputLayout, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, bool deterministic,
    const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dweightsOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerGrad(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_GRAD_H_
