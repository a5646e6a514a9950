#ifndef FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_
#define FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_

/// Computes the scores of blocks of 128 keys from which MiniMax-M3 selects blocks.
///
/// query is [T1,N1,D], float32, float16 or bfloat16. key has the type of query: [T2,1,D] with layoutKey "TND", or pages
/// [blocks,page size,1,D] with "PA_BSND", which need blockTable, int32 [B,n]. actualSeqQlen has inclusive prefix sums,
/// int32 or int64 [B]. actualSeqKlen has prefix sums too for "TND", and one length per sequence for pages. startLoc [B]
/// is the position of each sequence's first query among its keys. score is float32 [N1,T1,C]; C is at least the number
/// of blocks of the longest sequence.
///
/// The score of a block is the largest product of the query with a key of the block, among the keys that the query
/// sees. It is -inf if the query sees none of them. With sparseMode 3 the last query sees all keys, and each query
/// before it sees one key fewer. With 0 every query sees all keys. Blocks below initBlocks get 1e30. With loc =
/// (startLoc + t) / 128 for query t of a sequence, blocks max(0, loc + 1 - localBlocks) to loc get 1e29 instead.
/// Columns behind a sequence's blocks are -inf. No device has confirmed which form the lengths have, nor that loc is
/// the query's block. scale must be null, since int8 queries are not served. attenMask must be null with sparseMode 0,
/// and is not read with 3.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnMsaIndexScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* blockTableOptional, const aclTensor* scaleOptional,
    const aclTensor* attenMaskOptional, const aclTensor* actualSeqQlenOptional, const aclTensor* actualSeqKlenOptional,
    const aclTensor* startLoc, char* layoutKey, int64_t sparseMode, int64_t initBlocks, int64_t localBlocks,
    const aclTensor* score, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnMsaIndexScore(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                   aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_MSA_INDEX_SCORE_H_
