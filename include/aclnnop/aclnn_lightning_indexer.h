#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_H_

/// The keys that a query token attends to: those of the sparseCount largest sum_g weights_g max(0, query_g . key), in
/// descending order, equal ones by ascending key; unused entries are -1.
///
/// With layoutQueryOptional "BSND" or null query is [B,S1,N1,D] and weights is [B,S1,N1]; with "TND" they are [T1,N1,D]
/// and [T1,N1]. layoutKeyOptional is the same, or "PA_BSND": key lies in pages [blocks,block size,1,D] that
/// blockTableOptional, int32 [B,n], puts in order. float, float16 or bfloat16, any strides and sizes; weights of
/// query's type or float. Lengths, int32 or int64: inclusive prefix sums (TND), else the length of each batch element;
/// null: all rows (TND and pages need them). sparseMode 0: all keys; 3: causal to the last key; preTokens and
/// nextTokens are not looked at. sparseIndicesOut: int32 [B,S1,1,sparseCount] (TND [T1,1,sparseCount]). returnValues:
/// sparseValuesOut, query's type or float, gets the scores, -inf where there is no key; else it may be null.
///
/// Lengths and pages are read when the stream reaches the operator; a bad one is what aclrtSynchronizeStream returns,
/// with nothing written.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/sparse.md says what is the same as on the device; fa/lightning_indexer.h what is computed.
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
