#ifndef FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_SOFTMAX_LSE_H_
#define FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_SOFTMAX_LSE_H_

/// Computes the maximum of the indexer's scores and the sum of their exponentials, over all keys that sparseMode
/// allows. The loss of aclnn_dense_lightning_indexer_grad_kl_loss.h takes both results.
///
/// - queryIndex is [B,S1,Nidx,D], keyIndex [B,S2,1,D], and weight [B,S1,Nidx], of queryIndex's type or FLOAT. layout is
///   "BSND" (or null), or "TND", where [T,...] replaces [B,S,...]. Any Nidx, D up to 1024, and FLOAT tensors are
///   allowed.
/// - softmaxMaxOut and softmaxSumOut are FLOAT [B,1,S1] (TND [1,T1]). Both are 0 in a row without keys and in a row
///   past the length.
/// - actualSeqLengths hold one length per batch element (BSND) or inclusive prefix sums (TND). Null stands for all
///   rows; TND needs lengths.
/// - sparseMode is 0 or 3. preTokens and nextTokens are not read.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnDenseLightningIndexerSoftmaxLseGetWorkspaceSize(
    const aclTensor* queryIndex, const aclTensor* keyIndex, const aclTensor* weight,
    const aclIntArray* actualSeqLengthsQueryOptional, const aclIntArray* actualSeqLengthsKeyOptional,
    char* layoutOptional, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnDenseLightningIndexerSoftmaxLse(void* workspace, uint64_t workspaceSize,
                                                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_SOFTMAX_LSE_H_
