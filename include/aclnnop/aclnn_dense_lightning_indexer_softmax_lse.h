#ifndef FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_SOFTMAX_LSE_H_
#define FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_SOFTMAX_LSE_H_

/// Maximum, and sum of exponentials, of the indexer's scores over every key below the limit, as
/// aclnn_dense_lightning_indexer_grad_kl_loss.h takes them. queryIndex [B,S1,Nidx,D], keyIndex [B,S2,1,D], weight
/// [B,S1,Nidx] of queryIndex's type or FLOAT; layout "BSND" (or null) or "TND" ([T,...]). Any Nidx, D up to 1024;
/// FLOAT too. softmaxMaxOut and softmaxSumOut: FLOAT [B,1,S1] (TND [1,T1]); 0 and 0 for a row without keys and for a
/// row past its length. actualSeqLengths: BSND of each batch element, TND inclusive prefix sums; null: all rows (TND
/// needs them). sparseMode 0 or 3; preTokens and nextTokens are not read.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
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
