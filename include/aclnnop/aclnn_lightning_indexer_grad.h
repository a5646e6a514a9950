#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_GRAD_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_GRAD_H_

/// Computes the gradients of the values of aclnn_lightning_indexer.h from the arguments of that forward. Keys do not
/// lie in pages. dy is the gradient of the values, [B,S1,1,K] or [B,S1,K] (TND [T1,1,K] or [T1,K]), of query's type or
/// float. sparseIndices, int32 or int64, is the forward's output; a row ends at its first -1. inputLayout is "BSND" or
/// "TND".
///
/// The gradients of rows without keys, and of keys that no row selects, are 0. headNum and deterministic are ignored:
/// the order of the sums is always the same.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
/// docs/sparse.md says what is the same as on the device. fa/lightning_indexer_grad.h says what is computed.
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
