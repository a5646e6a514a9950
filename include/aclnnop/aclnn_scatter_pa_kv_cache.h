#ifndef FA_ACLNNOP_ACLNN_SCATTER_PA_KV_CACHE_H_
#define FA_ACLNNOP_ACLNN_SCATTER_PA_KV_CACHE_H_

/// Writes rows of keys and values into paged caches, in place.
///
/// key and value are [T,N,D]. slotMapping, int32 or int64 [T], holds the slot of each row: page * page size + row of
/// the page. A negative slot skips the row. If several rows have the same slot, the last one remains. Slots are checked
/// when the stream reaches the operator, before anything is written. Elements have any type of 1, 2, 4 or 8 bytes and
/// are copied unchanged.
///
/// | cacheModeOptional | scatterModeOptional | caches |
/// |---|---|---|
/// | "Norm" or null | "None" or null | [pages,rows,N,D] |
/// | "Norm" or null | "Nct" | [pages,rows,N,D] |
/// | "Norm" or null | "NHSD" | [pages,N,rows,D] |
/// | "PA_NZ" | "None" or null | [pages,N,D/L,rows,L] or [pages,N*D/L,rows,L]; L divides D |
///
/// With "Nct" row t of key begins offsets[0] + t * strides[0] elements after the first element of key. Row t of value
/// begins offsets[1] + t * strides[1] elements after the first element of value.
///
/// If value has no elements, only key is written. Compressed heads (compressLens, compressSeqOffset, seqLens, key of
/// rank 4; scatterMode "Alibi", "Rope" and "Omni") are not supported.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(
    const aclTensor* key, aclTensor* keyCacheRef, const aclTensor* slotMapping, const aclTensor* value,
    aclTensor* valueCacheRef, const aclTensor* compressLensOptional, const aclTensor* compressSeqOffsetOptional,
    const aclTensor* seqLensOptional, char* cacheModeOptional, char* scatterModeOptional,
    const aclIntArray* stridesOptional, const aclIntArray* offsetsOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnScatterPaKvCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                      aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SCATTER_PA_KV_CACHE_H_
