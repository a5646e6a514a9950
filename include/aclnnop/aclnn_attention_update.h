#ifndef FA_ACLNNOP_ACLNN_ATTENTION_UPDATE_H_
#define FA_ACLNNOP_ACLNN_ATTENTION_UPDATE_H_

/// Merges partial results of attention over disjoint sets of keys by their lse.
///
/// lse holds one float32 tensor [M] per part. localOut holds one tensor [M,D] per part, of float32, float16 or
/// bfloat16. lseOut must be null with updateType 0, and float32 [M] with updateType 1. If a part's lse is infinite in a
/// row, the part has no keys for that row, and localOut is not read there. A row for which no part has keys gets 0, and
/// an lse of +inf; the device gives NaN.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnAttentionUpdateGetWorkspaceSize(const aclTensorList* lse,
                                                                     const aclTensorList* localOut, int64_t updateType,
                                                                     aclTensor* out, aclTensor* lseOutOptional,
                                                                     uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttentionUpdate(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                     aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_ATTENTION_UPDATE_H_
