#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_H_

/// Selects the keys that a query token attends to: the sparseCount keys with the largest scores. The score of a key is
/// sum_g weights_g max(0, query_g . key). Keys stand in the order of descending scores; of keys with equal scores the
/// lower key comes first. Unused entries are -1.
///
/// - layoutQueryOptional "BSND" or null: query is [B,S1,N1,D] and weights is [B,S1,N1]. "TND": they are [T1,N1,D] and
///   [T1,N1].
/// - layoutKeyOptional is the same as layoutQueryOptional, or "PA_BSND". Then key lies in pages [blocks,block
///   size,1,D], which blockTableOptional, int32 [B,n], puts in order.
/// - Tensors are float, float16 or bfloat16, with any strides and sizes. weights has query's type or float.
/// - Lengths are int32 or int64. With TND they are inclusive prefix sums, otherwise one length per batch element. Null
///   means that all rows are in use. TND and pages need lengths.
/// - sparseMode 0 allows all keys; 3 is causal: the last query sees the last key. preTokens and nextTokens are ignored.
/// - sparseIndicesOut is int32 [B,S1,1,sparseCount] (TND [T1,1,sparseCount]).
/// - With returnValues, sparseValuesOut, of query's type or float, gets the scores, and -inf where there is no key.
///   Otherwise it may be null.
///
/// Lengths and pages are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream returns the
/// error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/lightning_indexer.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* weights,
    const aclTensor* actualSeqLengthsQueryOptional, const aclTensor* actualSeqLengthsKeyOptional,
    const aclTensor* blockTableOptional, char* layoutQueryOptional, char* layoutKeyOptional, int64_t sparseCount,
    int64_t sparseMode, int64_t preTokens, int64_t nextTokens, bool returnValues, const aclTensor* sparseIndicesOut,
    const aclTensor* sparseValuesOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexer(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                      aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_H_
