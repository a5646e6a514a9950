#ifndef FA_ACLNNOP_ACLNN_RING_ATTENTION_UPDATE_H_
#define FA_ACLNNOP_ACLNN_RING_ATTENTION_UPDATE_H_

/// Merges the results of attention over two disjoint sets of keys.
///
/// inputLayoutOptional "SBH" (attention [S,B,H], statistics [B,N,S,8]) or "TND" (attention [T,N,D], statistics [T,N,8]
/// that hold one block [N,S_b,8] per sequence). actualSeqQlenOptional, for TND: int64 or int32 prefix sums with a
/// leading 0, read when the stream reaches the operator. An output may be the previous partial that it replaces.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnRingAttentionUpdateGetWorkspaceSize(
    const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax, const aclTensor* prevSoftmaxSum,
    const aclTensor* curAttnOut, const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
    const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional, const aclTensor* attnOutOut,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnRingAttentionUpdate(void* workspace, uint64_t workspaceSize,
                                                         aclOpExecutor* executor, aclrtStream stream);

/// inputSoftmaxLayoutOptional, with "TND" only: "", "SBH" or null as above, "TND" for statistics in the order of
/// [T,N,8].
ACL_FUNC_VISIBILITY aclnnStatus aclnnRingAttentionUpdateV2GetWorkspaceSize(
    const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax, const aclTensor* prevSoftmaxSum,
    const aclTensor* curAttnOut, const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
    const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional, char* inputSoftmaxLayoutOptional,
    const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnRingAttentionUpdateV2(void* workspace, uint64_t workspaceSize,
                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_RING_ATTENTION_UPDATE_H_
