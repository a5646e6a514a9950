#ifndef FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V4_H_
#define FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V4_H_

/// aclnnFusedInferAttentionScoreV3 with sinks and quantised queries. learnableSink, float or of the type of query, has
/// the shape [N]. It gives each head the score of one more key, whose value is 0.
///
/// With queryQuantMode 3, query, key and value are int8 or FLOAT8_E4M3FN. dequantScaleQuery, float, has the shape of
/// query without D. The same numbers may also have the shape [T,1,N], [T,N,1] or one dimension. There are two cases:
/// - With keyAntiquantMode and valueAntiquantMode 0, there is one scale of keys and one of values. queryRope must have
///   been divided by dequantScaleQuery * keyAntiquantScale before the call.
/// - With keyAntiquantMode 3 and valueAntiquantMode 2, query, key and value are FLOAT8_E4M3FN. Scales of keys are
///   [blocks, Nkv, blockSize], or without pages [B, Nkv, S]. Scales of values are [Nkv]. quantScale1, one number in
///   (0, 448], is the factor of probabilities before they are rounded.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, const aclTensor* queryRope, const aclTensor* keyRope,
    const aclTensor* keyRopeAntiquantScale, const aclTensor* dequantScaleQuery, const aclTensor* learnableSink,
    int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
    int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode,
    bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode, int64_t queryQuantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
    const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
    const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
    const aclIntArray* actualSharedPrefixLen, const aclTensor* queryRope, const aclTensor* keyRope,
    const aclTensor* keyRopeAntiquantScale, const aclTensor* dequantScaleQuery, const aclTensor* learnableSink,
    int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
    int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode,
    bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode, int64_t queryQuantMode,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreV4(void* workspace, uint64_t workspaceSize,
                                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_V4_H_
