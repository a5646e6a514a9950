#ifndef FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_GRAD_H_
#define FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_GRAD_H_

/// Computes the gradients of aclnn_block_sparse_attention.h from the arguments of that forward. dout is the gradient of
/// attentionOut. attentionOut and softmaxLse are results of the forward. A row whose lse is infinite has no keys, and
/// adds nothing to a gradient.
///
/// The bits of the gradients do not depend on the number of threads, nor on ACL_OPT_DETERMINISTIC.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockSparseAttentionGradGetWorkspaceSize(
    const aclTensor* dout, const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, const aclTensor* blockSparseMaskOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* blockShapeOptional,
    const aclIntArray* actualSeqLengthsOptional, const aclIntArray* actualSeqLengthsKvOptional, char* qInputLayout,
    char* kvInputLayout, int64_t numKeyValueHeads, int64_t maskType, double scaleValue, int64_t preTokens,
    int64_t nextTokens, const aclTensor* dq, const aclTensor* dk, const aclTensor* dv, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockSparseAttentionGrad(void* workspace, uint64_t workspaceSize,
                                                              aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_GRAD_H_
