#ifndef FA_ACLNNOP_ACLNN_RING_ATTENTION_UPDATE_H_
#define FA_ACLNNOP_ACLNN_RING_ATTENTION_UPDATE_H_

/// Merges the results of attention over two disjoint sets of keys.
///
/// inputLayoutOptional is "SBH" or "TND". With "SBH", attention is [S,B,H] and statistics are [B,N,S,8]. With "TND",
/// attention is [T,N,D], and statistics [T,N,8] hold one block [N,S_b,8] per sequence. actualSeqQlenOptional, for TND,
/// holds int64 or int32 prefix sums with a leading 0; it is read when the stream reaches the operator. An output may be
/// the prev input that it replaces, for example prevAttnOut.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
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

/// This version adds inputSoftmaxLayoutOptional, for "TND" only. With "", "SBH" or null, statistics hold one block
/// [N,S_b,8] per sequence. With "TND" they have the order [T,N,8].
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
