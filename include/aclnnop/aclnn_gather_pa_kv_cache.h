#ifndef FA_ACLNNOP_ACLNN_GATHER_PA_KV_CACHE_H_
#define FA_ACLNNOP_ACLNN_GATHER_PA_KV_CACHE_H_

/// Reads the rows of sequences out of paged caches, one sequence after another.
///
/// - With cacheMode "Norm", caches are [pages,rows,N,D]; keyRef and valueRef are [T,N,D].
/// - With cacheMode "PA_NZ", caches are [pages,N*D/L,rows,L]; keyRef and valueRef are [T,N*D].
/// - blockTables is [B,n], seqLens is [B], and seqOffset is [B], each int32 or int64.
/// - With isSeqLensCumsum, seqLens holds prefix sums [B+1] that begin with 0.
/// - A seqOffset must be a multiple of a page's rows.
///
/// If a row lies past the end of blockTables, or its entry of blockTables names no page, zeros are written. Rows past T
/// are dropped. Rows of keyRef and valueRef past the last sequence stay as they are. Lengths and offsets are checked
/// when the stream reaches the operator, before anything is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnGatherPaKvCacheGetWorkspaceSize(
    const aclTensor* keyCache, const aclTensor* valueCache, const aclTensor* blockTables, const aclTensor* seqLens,
    aclTensor* keyRef, aclTensor* valueRef, const aclTensor* seqOffsetOptional, char* cacheMode, bool isSeqLensCumsum,
    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnGatherPaKvCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                     aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_GATHER_PA_KV_CACHE_H_
