#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_SOFTMAX_L1_NORM_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_SOFTMAX_L1_NORM_H_

/// Computes one L1 norm of aclnn_sparse_flash_mla_grad.h alone, from q, one tensor of keys and the forward's
/// softmaxLse.
///
/// k [B,S2,1,D] (TND [T2,1,D]) holds compressed keys, or original keys with cmpRatio 1. maskMode is cmpMaskMode, 0
/// or 3. softmaxL1Norm is float in the shape of sparseIndices. Without sparseIndices it is [B,S1,1,C] (TND [T1,1,C]),
/// with column j for key j of the sequence; C is at least S2 (TND T2). The other arguments mean the same as in
/// aclnn_sparse_flash_mla.h.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMlaSoftmaxL1NormGetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* softmaxLse, const aclTensor* sparseIndicesOptional,
    const aclTensor* cuSeqlensQOptional, const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedKOptional, const aclTensor* cmpResidualKOptional, const aclTensor* topkLengthOptional,
    const aclTensor* metadataOptional, double softmaxScale, int64_t cmpRatio, int64_t maskMode, char* layoutQOptional,
    char* layoutKOptional, const aclTensor* softmaxL1Norm, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMlaSoftmaxL1Norm(void* workspace, uint64_t workspaceSize,
                                                                 aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_SOFTMAX_L1_NORM_H_
