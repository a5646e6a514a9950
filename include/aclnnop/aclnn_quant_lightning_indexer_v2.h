#ifndef FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_V2_H_
#define FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_V2_H_

/// aclnnLightningIndexerV2 (aclnn_lightning_indexer_v2.h) with quantised queries and keys. Scores are computed as in
/// aclnn_quant_lightning_indexer.h.
///
/// - quantMode 1: q and k are float8 e4m3. quantMode 2: they are int8. Modes 3 to 5 are refused.
/// - qDescale and kDescale have the shapes and types of queryDequantScale and keyDequantScale in that file.
/// - w and sparseValues are float, float16 or bfloat16.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnQuantLightningIndexerV2GetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* qDescale, const aclTensor* kDescale,
    const aclTensor* cuSeqlensQOptional, const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedKOptional, const aclTensor* cmpResidualKOptional, const aclTensor* blockTableOptional,
    const aclTensor* outputIdxOffsetOptional, const aclTensor* metadataOptional, int64_t topk, int64_t quantMode,
    int64_t maxSeqlenQ, char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio, int64_t returnValue,
    const aclTensor* sparseIndices, const aclTensor* sparseValues, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnQuantLightningIndexerV2(void* workspace, uint64_t workspaceSize,
                                                             aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_QUANT_LIGHTNING_INDEXER_V2_H_
