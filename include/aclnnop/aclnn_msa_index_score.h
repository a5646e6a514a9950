#ifndef FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_
#define FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_

/// Computes the scores of blocks of 128 keys from which MiniMax-M3 selects blocks.
///
/// query is [T1,N1,D], float32, float16, bfloat16 or float8_e4m3fn. key has the type of query, or is int8 with scale:
/// [T2,1,D] with layoutKey "TND", or pages [blocks,page size,1,D] with "BBND" and [blocks,1,page size,D] with "BNBD",
/// which need blockTable, int32 [B,n]. Null and "" stand for "BBND". scale is float32 [T2,1] or [T2], for pages
/// [blocks,1,page size] or [blocks,page size,1]. It is given if and only if key is int8. actualSeqQlen, int32 or int64
/// [B+1], holds prefix sums that begin with 0. actualSeqKlen holds such sums with "TND", and one length per sequence,
/// [B], with pages.
/// startLoc [B] is the block of keys that counts as the own block of all query tokens of a sequence. score is float32
/// [N1,T1,C]; C is at least the number of blocks of the longest sequence.
///
/// The score of a block is the largest query . key * scale over those keys of the block that the query sees. If the
/// query sees none of them, the score is -inf. With sparseMode 3 the last query sees all keys, each query before it one
/// fewer; with 0 every query sees all keys. Blocks below initBlocks get the score 1e30. Blocks max(0, startLoc + 1 -
/// localBlocks) to startLoc get 1e29, even if they are below initBlocks. Columns past a sequence's last block are -inf.
/// attenMask must be null with sparseMode 0, and is not read with 3. Queries and keys of HiFloat8 and float8_e5m2 are
/// refused.
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
