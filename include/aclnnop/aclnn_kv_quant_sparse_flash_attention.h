#ifndef FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_H_

/// aclnnSparseFlashAttention (aclnn_sparse_flash_attention.h) with rows of quantised keys, which are values too.
///
/// - query is [B,S1,N1,D + ropeHeadDim] (TND [T1,N1,D + ropeHeadDim]), and out is [B,S1,N1,Dv] with Dv <= D.
/// - key is int8 or float8 e4m3. A row has D numbers, ropeHeadDim columns of query's type, and one float scale per
///   tileSize numbers, with no gaps. tileSize is at least 1, and the last tile may be shorter.
/// - Each number is multiplied by its scale in float. The first Dv columns are the values.
/// - value is key, or a tensor of the same type and row format whose first Dv columns are the values.
/// - keyQuantMode, valueQuantMode and attentionMode must be 2, and quantScaleRepoMode 1. keyDequantScaleOptional and
///   valueDequantScaleOptional must be null, since scales lie in the rows.
/// - All other parameters are those of aclnn_sparse_flash_attention.h. There are no softmax statistics.
///
/// Lengths, pages and indices are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream
/// returns the error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/sparse_flash_attention.h says what is computed.
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_kv_quant_sparse_flash_attention_v2.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnKvQuantSparseFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* keyDequantScaleOptional, const aclTensor* valueDequantScaleOptional,
    const aclTensor* blockTableOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, double scaleValue, int64_t keyQuantMode, int64_t valueQuantMode,
    int64_t sparseBlockSize, char* layoutQuery, char* layoutKv, int64_t sparseMode, int64_t preTokens,
    int64_t nextTokens, int64_t attentionMode, int64_t quantScaleRepoMode, int64_t tileSize, int64_t ropeHeadDim,
    const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnKvQuantSparseFlashAttention(void* workspace, uint64_t workspaceSize,
                                                                 aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_KV_QUANT_SPARSE_FLASH_ATTENTION_H_
