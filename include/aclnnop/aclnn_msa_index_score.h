#ifndef FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_
#define FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_

/// Computes the scores of blocks of 128 keys from which MiniMax-M3 selects blocks.
///
/// query is [T1,N1,D], float32, float16, bfloat16 or float8_e4m3fn. key has the type of query, or is int8 with scale:
/// [T2,1,D] with layoutKey "TND", or pages [blocks,page size,1,D] with "BBND" and [blocks,1,page size,D] with "BNBD",
/// which need blockTable, int32 [B,n]. Null and "" stand for "BBND". scale is float32 [T2,1] or [T2], for pages
/// [blocks,1,page size] or [blocks,page size,1], and given exactly for int8. actualSeqQlen has prefix sums, int32 or
/// int64 [B+1], which begin with 0. So has actualSeqKlen for "TND"; for pages it has one length per sequence, [B].
/// startLoc [B] is the block of keys that counts as the own block of all query tokens of a sequence. score is float32
/// [N1,T1,C]; C is at least the number of blocks of the longest sequence.
///
/// A score is the largest product of the query with the keys of the block that it sees, times their scales, or -inf.
/// With sparseMode 3 the last query sees all keys, each query before it one fewer; with 0 every query sees all keys.
/// Blocks below initBlocks get 1e30. Blocks max(0, startLoc + 1 - localBlocks) to startLoc get 1e29 instead. Columns
/// behind a sequence's blocks are -inf. attenMask must be null with sparseMode 0, and is not read with 3. Queries and
/// keys of HiFloat8 and float8_e5m2 are refused.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnMsaIndexScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* blockTableOptional, const aclTensor* scaleOptional,
    const aclTensor* attenMaskOptional, const aclTensor* actualSeqQlenOptional, const aclTensor* actualSeqKlenOptional,
    const aclTensor* startLoc, char* layoutKeyOptional, int64_t sparseMode, int64_t initBlocks, int64_t localBlocks,
    const aclTensor* score, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnMsaIndexScore(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                   aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_
