#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_H_

/// Computes attention over a window of original keys and over compressed keys, in one softmax. Key rows are values too.
///
/// - q and attnOutOut are [B,S1,N1,D], and oriKv and cmpKv are [B,S2,1,D]. All are float, float16 or bfloat16, of one
///   type. At least one of oriKv and cmpKv is given.
/// - Layout "TND" has [T,...] for [B,S,...]. Layout "PA_BBND" of keys has pages [blocks,block size,1,D]. It needs the
///   block tables, int32 [B,n], which other layouts ignore.
/// - oriSparseIndices and cmpSparseIndices, int32 or int64 [B,S1,1,K] (TND [T1,1,K]), hold numbers of keys. A list ends
///   at its first -1. oriTopkLength and cmpTopkLength, int32 [B,S1,1] (TND [T1,1]), may limit the entries of a list.
/// - Query i of S1 has the position t = S2 - S1 + i + 1. S2 is the number of original keys or, without oriKv, cmpRatio
///   times the number of compressed keys, plus cmpResidualKv [B].
/// - oriMaskMode 0 allows all original keys, and 3 the keys below t. 4 allows the keys from t - oriWinLeft - 1 to t +
///   oriWinRight - 1; a window of -1 has no limit on its side. oriMaskMode must be 0 with oriSparseIndices.
/// - cmpMaskMode 0 allows all compressed keys, and 3 the keys below t / cmpRatio.
/// - cuSeqlens* [B+1], with a leading 0, are needed for TND and only allowed there. seqused* [B] say how many rows are
///   in use; pages need these numbers.
/// - sinks, float [N1], are the scores of a virtual key whose value is 0. metadata is not read. topkValueMode must
///   be 1.
/// - With returnSoftmaxLse, softmaxLseOut, float [B,1,S1,N1] (TND [1,T1,N1]), is written. It is inf for a row without
///   keys.
///
/// Lengths, pages and lists are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream
/// returns the error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. fa/shared_kv_attention.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMlaGetWorkspaceSize(
    const aclTensor* q, const aclTensor* oriKvOptional, const aclTensor* cmpKvOptional,
    const aclTensor* oriSparseIndicesOptional, const aclTensor* cmpSparseIndicesOptional,
    const aclTensor* oriBlockTableOptional, const aclTensor* cmpBlockTableOptional, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensOriKvOptional, const aclTensor* cuSeqlensCmpKvOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedOriKvOptional, const aclTensor* sequsedCmpKvOptional,
    const aclTensor* cmpResidualKvOptional, const aclTensor* oriTopkLengthOptional,
    const aclTensor* cmpTopkLengthOptional, const aclTensor* sinksOptional, const aclTensor* metadataOptional,
    double softmaxScale, int64_t cmpRatio, int64_t oriMaskMode, int64_t cmpMaskMode, int64_t oriWinLeft,
    int64_t oriWinRight, char* layoutQOptional, char* layoutKvOptional, int64_t topkValueMode, bool returnSoftmaxLse,
    const aclTensor* attnOutOut, const aclTensor* softmaxLseOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashMla(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_MLA_H_
