#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_

/// Computes the gradients of aclnn_sparse_flash_attention.h from the arguments of that forward. Keys do not lie in
/// pages. dOut is the gradient of out, which is the forward's output. softmaxMax and softmaxSum are outputs of the
/// forward. layoutOptional is "BSND" (or null) or "TND".
///
/// If value and dValueOut are null, keys are values too, and dKeyOut holds the sum of both gradients. The gradients of
/// keys that no token selects, and of rows without keys, are 0. deterministic is ignored: the order of the sums is
/// always the same.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
/// docs/sparse.md says what is the same as on the device. fa/sparse_flash_attention_grad.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad_v2.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* dOut, const aclTensor* out, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* actualSeqLengthsQueryOptional, const aclTensor* actualSeqLengthsKvOptional,
    const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional, double scaleValue, int64_t sparseBlockSize,
    char* layoutOptional, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, bool deterministic,
    const aclTensor* dQueryOut, const aclTensor* dKeyOut, const aclTensor* dValueOut,
    const aclTensor* dQueryRopeOutOptional, const aclTensor* dKeyRopeOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGrad(void* workspace, uint64_t workspaceSize,
                                                              aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_GRAD_H_
