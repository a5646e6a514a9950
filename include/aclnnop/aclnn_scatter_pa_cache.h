#ifndef FA_ACLNNOP_ACLNN_SCATTER_PA_CACHE_H_
#define FA_ACLNNOP_ACLNN_SCATTER_PA_CACHE_H_

/// Writes rows of keys into a paged cache, in place, as aclnnScatterPaKvCache does without values.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnScatterPaCacheGetWorkspaceSize(const aclTensor* key, aclTensor* keyCacheRef,
                                                                    const aclTensor* slotMapping,
                                                                    const aclTensor* compressLensOptional,
                                                                    const aclTensor* compressSeqOffsetOptional,
                                                                    const aclTensor* seqLensOptional, char* cacheMode,
                                                                    uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnScatterPaCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SCATTER_PA_CACHE_H_
