#ifndef FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_H_
#define FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_H_

/// aclnnLightningIndexer (aclnn_lightning_indexer.h) with quantised queries and keys. The score of a key is
/// keyDequantScale sum_g (weights_g queryDequantScale_g) max(0, query_g . key).
///
/// - query and key are both int8 or both float8 e4m3. Products of int8 are exact.
/// - weights, queryDequantScale and keyDequantScale are float, float16 or bfloat16.
/// - queryDequantScale is [B,S1,N1] (TND [T1,N1]). keyDequantScale is [B,S2,1] or [B,S2] (TND [T2,1] or [T2]). With
///   pages it is [blocks,block size,1] or [blocks,block size].
/// - queryQuantMode and keyQuantMode must be 0.
/// - out is int32 [B,S1,1,sparseCount] (TND [T1,1,sparseCount]).
/// - All other parameters are those of aclnn_lightning_indexer.h.
///
/// Lengths and pages are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream returns the
/// error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/lightning_indexer.h says what is computed.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnQuantLightningIndexerGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* weights, const aclTensor* queryDequantScale,
    const aclTensor* keyDequantScale, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKeyOptional, const aclTensor* blockTableOptional, int64_t queryQuantMode,
    int64_t keyQuantMode, char* layoutQueryOptional, char* layoutKeyOptional, int64_t sparseCount, int64_t sparseMode,
    int64_t preTokens, int64_t nextTokens, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnQuantLightningIndexer(void* workspace, uint64_t workspaceSize,
                                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_H_
