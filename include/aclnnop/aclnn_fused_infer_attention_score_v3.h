#ifndef FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V3_H_
#define FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V3_H_

/// aclnnFusedInferAttentionScoreV2 with a second part of heads: scores are query key^T + queryRope keyRope^T. queryRope
/// has the form of query, and keyRope has the form of key, also in pages. keyRopeAntiquantScale must be null.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, const aclTensor* queryRope, const aclTensor* keyRope,
    const aclTensor* keyRopeAntiquantScale, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize,
    int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, const aclTensor* queryRope, const aclTensor* keyRope,
    const aclTensor* keyRopeAntiquantScale, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize,
    int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV3(void* workspace, uint64_t workspaceSize,
                                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V3_H_
