#ifndef FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_SPARSE_FLASH_ATTENTION_H_

/// Sparse top-k attention with one key head: attentionOut = softmax(scaleValue query K_sel^T) V_sel, where every query
/// token has a list of keys of its own.
///
/// layoutQuery "BSND": query [B,S1,N1,D], or "TND": [T1,N1,D]; layoutKv the same, or "PA_BSND": key and value in pages
/// [blocks,block size,1,D] that blockTable, int32 [B,n], puts in order. float, float16 or bfloat16, any strides and
/// sizes. value null: the first columns of key, as many as attentionOut has. queryRope and keyRope, null or both: a
/// second part of the heads. sparseIndices, int32 or int64 [B,S1,1,K] (TND [T1,1,K]): blocks of sparseBlockSize keys,
/// 1..128, up to the first -1. sparseMode 0: all keys; 3: causal to the last key; preTokens and nextTokens are not
/// looked at. attentionMode: 2. actualSeqLengthsQuery and actualSeqLengthsKv, int32 or int64: inclusive prefix sums
/// (TND), else the length of each batch element; null: all rows (TND and pages need them).
/// returnSoftmaxLse: softmaxMaxOut and softmaxSumOut, float [B,1,S1,N1] (TND [1,T1,N1]), are written; else they may be
/// null.
///
/// Lengths, pages and indices are read when the stream reaches the operator; a bad one is what aclrtSynchronizeStream
/// returns, with nothing written.
/// @return 161001 for a null that is required, 161002 for everything else that is wrong, aclGetRecentErrMsg() names it.
/// docs/sparse.md says what is the same as on the device; fa/sparse_flash_attention.h what is computed.
#include <stdbool.h>

#include "aclnn/aclnn_base.h"

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
