#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_GRAD_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_GRAD_H_

/// Computes the gradients of aclnn_sparse_flash_mla.h from the arguments of that forward. Keys do not lie in pages.
/// dOut is the gradient of out, the forward's output, and lse is the forward's softmaxLse.
///
/// dOriKv, dCmpKv, dSinks and the L1 norms are optional. An L1 norm is float and has the shape of a list. For each
/// entry of the list it holds the probability of the key, averaged over the heads, or 0 if the entry has no key.
/// aclnn_sparse_flash_mla_softmax_l1_norm.h says which shape an L1 norm has without a list. Rows whose lse is inf or
/// -inf add nothing.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. fa/shared_kv_attention_grad.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMlaGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* dOut, const aclTensor* out, const aclTensor* lse,
    const aclTensor* oriKvOptional, const aclTensor* cmpKvOptional, const aclTensor* oriSparseIndicesOptional,
    const aclTensor* cmpSparseIndicesOptional, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensOriKvOptional, const aclTensor* cuSeqlensCmpKvOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedOriKvOptional, const aclTensor* sequsedCmpKvOptional,
    const aclTensor* cmpResidualKvOptional, const aclTensor* oriTopkLengthOptional,
    const aclTensor* cmpTopkLengthOptional, const aclTensor* sinksOptional, const aclTensor* metadataOptional,
    double scaleValue, int64_t cmpRatio, int64_t oriMaskMode, int64_t cmpMaskMode, int64_t oriWinLeft,
    int64_t oriWinRight, char* layoutQOptional, char* layoutKvOptional, const aclTensor* dQueryOut,
    const aclTensor* dOriKvOutOptional, const aclTensor* dCmpKvOutOptional, const aclTensor* dSinksOutOptional,
    const aclTensor* oriSoftmaxL1NormOutOptional, const aclTensor* cmpSoftmaxL1NormOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMlaGrad(void* workspace, uint64_t workspaceSize,
                                                        aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_GRAD_H_
