#ifndef FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V2_H_
#define FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V2_H_

/// aclnnFusedInferAttentionScore with separate scales for keys and for values, and with a prefix that all batch
/// elements share.
///
/// keyAntiquantScale, keyAntiquantOffset, valueAntiquantScale and valueAntiquantOffset replace antiquantScale and
/// antiquantOffset. keyAntiquantMode and valueAntiquantMode say what one scale holds for: 0 the tensor or a column, 1 a
/// token, 2 a head, 3 a token and a head, and in pages 4 a row, 5 a row and a head. Modes 1 and 3 need keys without
/// pages in a layout with an axis S. If key is a list of tensors, these modes may have more scales than the longest
/// tensor has rows.
///
/// keySharedPrefix and valueSharedPrefix, of batch size 1, come before the keys of each element. actualSharedPrefixLen
/// is the number of their rows in use. A prefix excludes pages, lists, padding sizes and TND.
///
/// ...GetMaxWorkspaceSize may be called instead of ...GetWorkspaceSize. The size that it returns suffices for any
/// values in the arrays.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, int64_t numHeads, double scaleValue, int64_t preTokens,
    int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
    int64_t blockSize, int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV2GetMaxWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, int64_t numHeads, double scaleValue, int64_t preTokens,
    int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
    int64_t blockSize, int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV2(void* workspace, uint64_t workspaceSize,
                                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V2_H_
