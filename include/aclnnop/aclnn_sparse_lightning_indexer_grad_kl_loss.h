#ifndef FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_
#define FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_

/// How far the indexer's distribution over the selected keys is from that of the attention, and its gradients: both at
/// once, summed over all tokens.
///
/// query, key, queryRope, keyRope, sparseIndices (blocks of one key), softmaxMax and softmaxSum are those of
/// aclnn_sparse_flash_attention.h; queryIndex [B,S1,Nidx,Didx], keyIndex [B,S2,1,Didx] and weights [B,S1,Nidx] those of
/// aclnn_lightning_indexer.h (the same for TND). layout "BSND" or "TND"; lengths: inclusive prefix sums (TND), else the
/// length of each batch element, null: all rows. dQueryIndex, dKeyIndex and dWeights have the shapes and types of
/// queryIndex, keyIndex and weights; loss: one float. Rows without keys add nothing and get 0. deterministic is not
/// looked at: the order of the sums is always the same.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/sparse.md says what is the same as on the device; fa/indexer_loss.h what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerGradKLLossGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* sparseIndices, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery,
    const aclIntArray* actualSeqLengthsKey, double scaleValue, char* layout, int64_t sparseMode, int64_t pre_tokens,
    int64_t next_tokens, bool deterministic, const aclTensor* dQueryIndex, const aclTensor* dKeyIndex,
    const aclTensor* dWeights, const aclTensor* loss, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerGradKLLoss(void* workspace, uint64_t workspaceSize,
                                                                      aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_
