#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_H_

/// Sparse top-k attention with one key head: attentionOut = softmax(scaleValue query K_sel^T) V_sel. Every query token
/// has its own list of keys.
///
/// - layoutQuery is "BSND" with query [B,S1,N1,D], or "TND" with [T1,N1,D].
/// - layoutKv is the same as layoutQuery, or "PA_BSND". Then key and value lie in pages [blocks,block size,1,D], which
///   blockTable, int32 [B,n], puts in order.
/// - Tensors are float, float16 or bfloat16, with any strides and sizes.
/// - If value is null, the values are the first columns of key, as many as attentionOut has.
/// - queryRope and keyRope are optional and come together. They add queryRope keyRope^T to query key^T.
/// - sparseIndices, int32 or int64 [B,S1,1,K] (TND [T1,1,K]), holds numbers of blocks of sparseBlockSize keys. A block
///   has 1 to 128 keys. A list ends at its first -1.
/// - sparseMode 0 allows all keys; 3 is causal: the last query sees the last key. preTokens and nextTokens are ignored.
///   attentionMode must be 2.
/// - actualSeqLengthsQuery and actualSeqLengthsKv are int32 or int64. With TND they are inclusive prefix sums,
///   otherwise one length per batch element. Null means that all rows are in use. TND and pages need lengths.
/// - With returnSoftmaxLse, softmaxMaxOut and softmaxSumOut, float [B,1,S1,N1] (TND [1,T1,N1]), are written. Otherwise
///   they may be null.
///
/// Lengths, pages and indices are read when the stream reaches the operator. If one is wrong, aclrtSynchronizeStream
/// returns the error and nothing is written.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument. docs/sparse.md says what is the same as on the device. fa/sparse_flash_attention.h says what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_sparse_flash_attention_v2.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTable, const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKv,
    const aclTensor* queryRope, const aclTensor* keyRope, double scaleValue, int64_t sparseBlockSize, char* layoutQuery,
    char* layoutKv, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, int64_t attentionMode,
    bool returnSoftmaxLse, const aclTensor* attentionOutOut, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnSparseFlashAttention(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_H_
