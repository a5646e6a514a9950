#ifndef FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_
#define FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_H_

/// Computes the KL loss of an indexer against the attention over the selected keys, summed over all tokens, and the
/// gradients of this loss.
///
/// - query, key, queryRope, keyRope, sparseIndices (blocks of one key), softmaxMax and softmaxSum are as in
///   aclnn_sparse_flash_attention.h.
/// - queryIndex [B,S1,Nidx,Didx], keyIndex [B,S2,1,Didx] and weights [B,S1,Nidx] are as in aclnn_lightning_indexer.h,
///   also for TND.
/// - layout is "BSND" or "TND". With TND, lengths are inclusive prefix sums, otherwise one length per batch element.
///   Null means that all rows are in use.
/// - dQueryIndex, dKeyIndex and dWeights have the shapes and types of queryIndex, keyIndex and weights; loss is one
///   float.
///
/// Rows without keys add nothing to the loss, and their gradients are 0. deterministic is ignored: the order of the
/// sums is always the same.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/indexer_loss.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss_v2.h"

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
