#ifndef FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_H_
#define FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_H_

/// Attention in which a mask keeps or drops whole blocks of query rows and keys.
///
/// The layouts are TND, BNSD and BSND, the same for queries and keys. blockSparseMask is int8, uint8 or bool [B, N,
/// ceil(Sq / x), ceil(Skv / y)]; 0 drops a block. B and N may be 1, and N may be the number of key heads. In TND, Sq
/// and Skv are the lengths of the longest sequences. A null mask keeps every block. blockShape is {x, y}, by default
/// {128, 128}.
///
/// actualSeqLengths and actualSeqLengthsKv hold one length per batch element, also in TND. TND needs both. Rows past a
/// length, and rows without keys, get 0 and an lse of +inf. softmaxLse is float32: [B,N,S,1] in BNSD, [B,S,N,1] in
/// BSND, [T,N,1] in TND. It is written if softmaxLseFlag is 1. A scaleValue of 0 makes all scores 0; it stands for no
/// default. innerPrecise, preTokens and nextTokens have no effect. attenMask and blockTable must be null, and maskType
/// and blockSize must be 0.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockSparseAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* blockSparseMaskOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* blockShapeOptional,
    const aclIntArray* actualSeqLengthsOptional, const aclIntArray* actualSeqLengthsKvOptional,
    const aclTensor* blockTableOptional, char* qInputLayout, char* kvInputLayout, int64_t numKeyValueHeads,
    int64_t maskType, double scaleValue, int64_t innerPrecise, int64_t blockSize, int64_t preTokens, int64_t nextTokens,
    int64_t softmaxLseFlag, const aclTensor* attentionOut, const aclTensor* softmaxLseOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockSparseAttention(void* workspace, uint64_t workspaceSize,
                                                          aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_BLOCK_SPARSE_ATTENTION_H_
