#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_KL_LOSS_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_KL_LOSS_H_

/// Computes the value of an indexer's KL loss from two given distributions.
///
/// targetScore y is [...,K] and indexProbs Y has the same shape; each is float32, float16 or bfloat16, with any
/// strides. loss is float32 with one element. In each row of K entries P = y / (sum(y) + eps). loss is the sum of w *
/// (ln max(P, eps) - ln(Y + eps)) over all entries, where w is y if weightType is "logits" and P if it is "probs". No
/// device has confirmed that the first logarithm takes P. eps is finite and at least 0.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerKLLossGetWorkspaceSize(
    const aclTensor* targetScore, const aclTensor* indexProbs, double eps, const char* weightType,
    const aclTensor* loss, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerKLLoss(void* workspace, uint64_t workspaceSize,
                                                            aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_KL_LOSS_H_
