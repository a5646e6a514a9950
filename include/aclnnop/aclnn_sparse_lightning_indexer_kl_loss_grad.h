#ifndef FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_KL_LOSS_GRAD_H_
#define FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_KL_LOSS_GRAD_H_

/// Computes the gradients of an indexer that learns given probabilities of selected, compressed keys.
///
/// q is [B,S1,N,D], k [B,S2,1,D] of the type of q, and w [B,S1,N], float32 or of the type of q. TND has [T,…] for
/// [B,S,…]. sparseIndices is int32 [B,S1,1,K]; a list ends at its first -1. attnSoftmaxL1Norm holds the probability p
/// of each entry, float32 [B,S1,K] or [B,S1,1,K]. Let y be the softmax of the indexer's scores over the list. Then the
/// gradient of a score is y * sum(p) - p. The device's documentation has y - p; no device has confirmed either
/// formula. softmaxOut gets y, or 0 where an entry has no key, in one of the shapes of attnSoftmaxL1Norm.
///
/// TND needs cuSeqLensQ and cuSeqLensK, int32 or int64 [B+1] with a leading 0; BSND takes neither. seqUsedQ and
/// seqUsedK [B] say how many rows are in use. With maskMode 3, token t sees the keys below
/// (S2 * cmpRatio + cmpResidualK - S1 + t + 1) / cmpRatio, and with maskMode 0 every key. metadata is not read.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerKLLossGradGetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* sparseIndices,
    const aclTensor* attnSoftmaxL1Norm, const aclTensor* cuSeqLensQOptional, const aclTensor* cuSeqLensKOptional,
    const aclTensor* seqUsedQOptional, const aclTensor* seqUsedKOptional, const aclTensor* cmpResidualKOptional,
    const aclTensor* metadataOptional, char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio,
    const aclTensor* dq, const aclTensor* dk, const aclTensor* dw, const aclTensor* softmaxOut, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerKLLossGrad(void* workspace, uint64_t workspaceSize,
                                                                      aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_KL_LOSS_GRAD_H_
