#ifndef FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_V2_H_
#define FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_V2_H_

/// The lightning indexer (aclnn_lightning_indexer.h) for compressed keys, each of which stands for cmpRatio tokens.
///
/// - layoutQ "BSND" or null: q is [B,S1,N1,D] and w is [B,S1,N1]. "TND": they are [T1,N1,D] and [T1,N1]. w has q's type
///   or float.
/// - layoutK is the same as layoutQ, or "PA_BBND". Then k lies in pages [blocks,block size,1,D], which
///   blockTableOptional, int32 [B,n], puts in order.
/// - cuSeqlensQOptional and cuSeqlensKOptional, int32 or int64 [B+1], are prefix sums that begin with 0. Each is
///   required if its layout is "TND", and must be null otherwise.
/// - sequsedQOptional and sequsedKOptional, [B], are how many rows of each sequence are in use; null means all. Pages
///   need sequsedKOptional.
/// - maskMode 0 allows all keys. With maskMode 3, query t of S1 queries may select the first (S2 cmpRatio +
///   cmpResidualK - S1 + t + 1) / cmpRatio of S2 keys, rounded down. cmpResidualKOptional is [B], and null means 0.
/// - outputIdxOffsetOptional, int32 [B,S1,1] (TND [T1,1]) or [B], is added to each index that is not -1. Offsets must
///   be at least 0, and each sum below 2^31. What the device does with other offsets is not documented.
/// - sparseIndices is int32 [B,S1,1,topk] (TND [T1,1,topk]). With returnValue 1, sparseValues, of q's type or float,
///   gets the scores, and -inf where there is no key. With returnValue 0, sparseValues may be null.
/// - metadataOptional and maxSeqlenQ, which must be at least -1, are ignored.
///
/// Integers in tensors are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream returns
/// the error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/lightning_indexer.h says what is computed.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerV2GetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional, const aclTensor* sequsedKOptional,
    const aclTensor* cmpResidualKOptional, const aclTensor* blockTableOptional,
    const aclTensor* outputIdxOffsetOptional, const aclTensor* metadataOptional, int64_t topk, int64_t maxSeqlenQ,
    char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio, int64_t returnValue,
    const aclTensor* sparseIndices, const aclTensor* sparseValues, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnLightningIndexerV2(void* workspace, uint64_t workspaceSize,
                                                        aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_LIGHTNING_INDEXER_V2_H_
