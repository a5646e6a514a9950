#ifndef FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_V2_H_
#define FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_V2_H_

/// aclnnSparseLightningIndexerGradKLLoss (aclnn_sparse_lightning_indexer_grad_kl_loss.h) with the sinks of
/// aclnn_sparse_flash_attention_v2.h.
///
/// sinks is null or float [N1]. The target of a key is the sum of its probabilities over the heads, divided by a
/// number. That number is N1 minus the sum of the sinks' probabilities, exp(sink - max) / sum. So the target of a row
/// adds up to 1. A row whose sinks have all the weight has no loss and no gradients. No device has confirmed this
/// formula.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerGradKLLossV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* sparseIndices, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery,
    const aclIntArray* actualSeqLengthsKey, const aclTensor* sinks, double scaleValue, char* layout, int64_t sparseMode,
    int64_t pre_tokens, int64_t next_tokens, bool deterministic, const aclTensor* dQueryIndex,
    const aclTensor* dKeyIndex, const aclTensor* dWeights, const aclTensor* loss, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseLightningIndexerGradKLLossV2(void* workspace, uint64_t workspaceSize,
                                                                        aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_LIGHTNING_INDEXER_GRAD_KL_LOSS_V2_H_
