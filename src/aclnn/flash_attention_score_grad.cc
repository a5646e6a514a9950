// The versions of the dense backward differ only in their parameters.
#include "aclnn/operations/backward_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

using fa::aclnn::DropoutOf;
using fa::aclnn::IsPacked;
using fa::aclnn::PrepareBackward;

aclnnStatus aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
      query, keyIn, value, dy, pseShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional,
      softmaxMaxOptional, softmaxSumOptional, softmaxInOptional, attentionInOptional, prefixOptional,
      /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,
      innerPrecise, sparseMode, /*pseType=*/1, dqOut, dkOut, dvOut, dpseOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreGrad)

aclnnStatus aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionScoreGradV3GetWorkspaceSize(
      query, keyIn, value, dy, pseShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional,
      softmaxMaxOptional, softmaxSumOptional, softmaxInOptional, attentionInOptional, /*sinkIn=*/nullptr,
      prefixOptional, qStartIdxOptional, kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum,
      inputLayout, innerPrecise, sparseMode, pseType, dqOut, dkOut, dvOut, dpseOut, /*dsink=*/nullptr, workspaceSize,
      executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreGradV2)

aclnnStatus aclnnFlashAttentionScoreGradV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclTensor* sinkInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t /*innerPrecise*/, int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, const aclTensor* dsinkOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return PrepareBackward({.query = query,
                          .key_in = keyIn,
                          .value = value,
                          .dy = dy,
                          .pse_shift = pseShiftOptional,
                          .drop_mask = dropMaskOptional,
                          .padding_mask = paddingMaskOptional,
                          .atten_mask = attenMaskOptional,
                          .softmax_max = softmaxMaxOptional,
                          .softmax_sum = softmaxSumOptional,
                          .softmax_in = softmaxInOptional,
                          .attention_in = attentionInOptional,
                          .sink_in = sinkInOptional,
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut,
                          .dsink_out = dsinkOut},
                         {.prefix = prefixOptional,
                          .q_start_idx = qStartIdxOptional,
                          .kv_start_idx = kvStartIdxOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode,
                          .pse_type = pseType},
                         workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreGradV3)

aclnnStatus aclnnFlashAttentionScoreGradV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclTensor* sinkInOptional,
    const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional, const aclTensor* dScaleQOptional,
    const aclTensor* dScaleKOptional, const aclTensor* dScaleVOptional, const aclTensor* dScaleDyOptional,
    const aclTensor* dScaleOOptional, const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, char* softmaxInLayout, int64_t /*innerPrecise*/, int64_t sparseMode,
    int64_t pseType, int64_t seed, int64_t offset, int64_t outDtype, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* dqRopeOut, const aclTensor* dkRopeOut, const aclTensor* dpseOut,
    const aclTensor* dsinkOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareBackward({.query = query,
                          .query_rope = queryRopeOptional,
                          .key_in = keyIn,
                          .key_in_rope = keyRopeOptional,
                          .value = value,
                          .dy = dy,
                          .pse_shift = pseShiftOptional,
                          .drop_mask = dropMaskOptional,
                          .padding_mask = paddingMaskOptional,
                          .atten_mask = attenMaskOptional,
                          .softmax_max = softmaxMaxOptional,
                          .softmax_sum = softmaxSumOptional,
                          .softmax_in = softmaxInOptional,
                          .attention_in = attentionInOptional,
                          .sink_in = sinkInOptional,
                          .dq_out = dqOut,
                          .dq_rope_out = dqRopeOut,
                          .dk_out = dkOut,
                          .dk_rope_out = dkRopeOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut,
                          .dsink_out = dsinkOut},
                         {.packed = IsPacked(inputLayout),
                          .prefix = prefixOptional,
                          .actual_seq_q_len = actualSeqQLenOptional,
                          .actual_seq_kv_len = actualSeqKvLenOptional,
                          .q_start_idx = qStartIdxOptional,
                          .kv_start_idx = kvStartIdxOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode,
                          .pse_type = pseType,
                          .softmax_layout_name = "softmaxInLayout",
                          .softmax_layout = softmaxInLayout,
                          .version4 = true,
                          .scales = {{"dScaleQ", dScaleQOptional},
                                     {"dScaleK", dScaleKOptional},
                                     {"dScaleV", dScaleVOptional},
                                     {"dScaleDy", dScaleDyOptional},
                                     {"dScaleO", dScaleOOptional}},
                          .out_dtype = outDtype,
                          .dropout = DropoutOf(dropMaskOptional, keepProb, seed, offset)},
                         workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreGradV4)

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
      query, keyIn, value, dy, pseShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional,
      softmaxMaxOptional, softmaxSumOptional, softmaxInOptional, attentionInOptional, prefixOptional,
      actualSeqQLenOptional, actualSeqKvLenOptional, /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue,
      keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode, /*pseType=*/1, dqOut, dkOut,
      dvOut, dpseOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionUnpaddingScoreGrad)

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
      query, /*queryRope=*/nullptr, keyIn, /*keyInRope=*/nullptr, value, dy, pseShiftOptional, dropMaskOptional,
      paddingMaskOptional, attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, softmaxInOptional,
      attentionInOptional, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional, qStartIdxOptional,
      kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode,
      pseType, dqOut, /*dqRope=*/nullptr, dkOut, /*dkRope=*/nullptr, dvOut, dpseOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionUnpaddingScoreGradV2)

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* keyIn, const aclTensor* keyInRope,
    const aclTensor* value, const aclTensor* dy, const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
    const aclTensor* dqOut, const aclTensor* dqRopeOut, const aclTensor* dkOut, const aclTensor* dkRopeOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(
      query, queryRope, keyIn, keyInRope, value, dy, pseShiftOptional, dropMaskOptional, paddingMaskOptional,
      attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, softmaxInOptional, attentionInOptional,
      /*sinkIn=*/nullptr, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional, qStartIdxOptional,
      kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode,
      pseType, /*softmaxInLayout=*/nullptr, dqOut, dqRopeOut, dkOut, dkRopeOut, dvOut, dpseOut, /*dsink=*/nullptr,
      workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionUnpaddingScoreGradV3)

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, char* softmaxInLayout, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(
      query, /*queryRope=*/nullptr, keyIn, /*keyInRope=*/nullptr, value, dy, pseShiftOptional, dropMaskOptional,
      paddingMaskOptional, attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, softmaxInOptional,
      attentionInOptional, /*sinkIn=*/nullptr, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
      /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,
      innerPrecise, sparseMode, /*pseType=*/1, softmaxInLayout, dqOut, /*dqRope=*/nullptr, dkOut, /*dkRope=*/nullptr,
      dvOut, dpseOut, /*dsink=*/nullptr, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionUnpaddingScoreGradV4)

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV5GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* keyIn, const aclTensor* keyInRope,
    const aclTensor* value, const aclTensor* dy, const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional,
    const aclTensor* sinkInOptional, const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/, int64_t sparseMode, int64_t pseType,
    char* softmaxInLayout, const aclTensor* dqOut, const aclTensor* dqRopeOut, const aclTensor* dkOut,
    const aclTensor* dkRopeOut, const aclTensor* dvOut, const aclTensor* dpseOut, const aclTensor* dsinkOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareBackward({.query = query,
                          .query_rope = queryRope,
                          .key_in = keyIn,
                          .key_in_rope = keyInRope,
                          .value = value,
                          .dy = dy,
                          .pse_shift = pseShiftOptional,
                          .drop_mask = dropMaskOptional,
                          .padding_mask = paddingMaskOptional,
                          .atten_mask = attenMaskOptional,
                          .softmax_max = softmaxMaxOptional,
                          .softmax_sum = softmaxSumOptional,
                          .softmax_in = softmaxInOptional,
                          .attention_in = attentionInOptional,
                          .sink_in = sinkInOptional,
                          .dq_out = dqOut,
                          .dq_rope_out = dqRopeOut,
                          .dk_out = dkOut,
                          .dk_rope_out = dkRopeOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut,
                          .dsink_out = dsinkOut},
                         {.packed = true,
                          .prefix = prefixOptional,
                          .actual_seq_q_len = actualSeqQLenOptional,
                          .actual_seq_kv_len = actualSeqKvLenOptional,
                          .q_start_idx = qStartIdxOptional,
                          .kv_start_idx = kvStartIdxOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode,
                          .pse_type = pseType,
                          .softmax_layout_name = "softmaxInLayout",
                          .softmax_layout = softmaxInLayout},
                         workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionUnpaddingScoreGradV5)
