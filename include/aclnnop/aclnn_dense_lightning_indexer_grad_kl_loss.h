#ifndef FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_
#define FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_

/// Computes the KL loss of aclnn_sparse_lightning_indexer_grad_kl_loss.h and its gradients. The loss covers all keys
/// that sparseMode allows, not selected keys only. The attention may have N2 key heads with N1 % N2 == 0. key is
/// [B,S2,N2,D]. softmaxMax and softmaxSum are float [B,N2,S1,N1/N2] (TND [N2,T1,N1/N2]). softmaxMaxIndex and
/// softmaxSumIndex, float [B,1,S1] (TND [1,T1]), are statistics of the indexer's scores.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnDenseLightningIndexerGradKLLossGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* softmaxMaxIndex, const aclTensor* softmaxSumIndex, const aclTensor* queryRope,
    const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery, const aclIntArray* actualSeqLengthsKey,
    double scaleValue, char* layout, int64_t sparseMode, int64_t pre_tokens, int64_t next_tokens,
    const aclTensor* dQueryIndex, const aclTensor* dKeyIndex, const aclTensor* dWeights, const aclTensor* loss,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnDenseLightningIndexerGradKLLoss(void* workspace, uint64_t workspaceSize,
                                                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_DENSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_
