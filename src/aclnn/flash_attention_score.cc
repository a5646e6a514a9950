// The versions of the dense forward differ only in their parameters.
#include "aclnn/operations/forward_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_flash_attention_score.h"

using fa::aclnn::DropoutOf;
using fa::aclnn::IsPacked;
using fa::aclnn::PrepareForward;

aclnnStatus aclnnFlashAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionScoreV2GetWorkspaceSize(
      query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional, prefixOptional,
      /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,
      innerPrecise, sparseMode, /*pseType=*/1, softmaxMaxOut, softmaxSumOut, softmaxOutOut, attentionOutOut,
      workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScore)

aclnnStatus aclnnFlashAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionScoreV3GetWorkspaceSize(
      query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional, /*sink=*/nullptr,
      prefixOptional, qStartIdxOptional, kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum,
      inputLayout, innerPrecise, sparseMode, pseType, softmaxMaxOut, softmaxSumOut, softmaxOutOut, attentionOutOut,
      workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreV2)

aclnnStatus aclnnFlashAttentionScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* sinkOptional, const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/, int64_t sparseMode, int64_t pseType,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareForward({.query = query,
                         .key = key,
                         .value = value,
                         .real_shift = realShiftOptional,
                         .drop_mask = dropMaskOptional,
                         .padding_mask = paddingMaskOptional,
                         .atten_mask = attenMaskOptional,
                         .sink = sinkOptional,
                         .softmax_max_out = softmaxMaxOut,
                         .softmax_sum_out = softmaxSumOut,
                         .softmax_out_out = softmaxOutOut,
                         .attention_out_out = attentionOutOut},
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

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreV3)

aclnnStatus aclnnFlashAttentionScoreV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional, const aclTensor* dScaleQOptional,
    const aclTensor* dScaleKOptional, const aclTensor* dScaleVOptional, const aclTensor* sinkOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/, int64_t sparseMode, int64_t outDtype, int64_t pseType,
    char* softmaxOutLayout, int64_t seed, int64_t offset, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareForward(
      {.query = query,
       .query_rope = queryRopeOptional,
       .key = key,
       .key_rope = keyRopeOptional,
       .value = value,
       .real_shift = realShiftOptional,
       .drop_mask = dropMaskOptional,
       .padding_mask = paddingMaskOptional,
       .atten_mask = attenMaskOptional,
       .sink = sinkOptional,
       .softmax_max_out = softmaxMaxOut,
       .softmax_sum_out = softmaxSumOut,
       .softmax_out_out = softmaxOutOut,
       .attention_out_out = attentionOutOut},
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
       .softmax_layout_name = "softmaxOutLayout",
       .softmax_layout = softmaxOutLayout,
       .version4 = true,
       .scales = {{"dScaleQ", dScaleQOptional}, {"dScaleK", dScaleKOptional}, {"dScaleV", dScaleVOptional}},
       .out_dtype = outDtype,
       .dropout = DropoutOf(dropMaskOptional, keepProb, seed, offset)},
      workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionScoreV4)

aclnnStatus aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
      query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional, attenMaskOptional, prefixOptional,
      actualSeqQLenOptional, actualSeqKvLenOptional, /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue,
      keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode, /*pseType=*/1, softmaxMaxOut,
      softmaxSumOut, softmaxOutOut, attentionOutOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionVarLenScore)

aclnnStatus aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
      query, /*queryRope=*/nullptr, key, /*keyRope=*/nullptr, value, realShiftOptional, dropMaskOptional,
      paddingMaskOptional, attenMaskOptional, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
      qStartIdxOptional, kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,
      innerPrecise, sparseMode, pseType, softmaxMaxOut, softmaxSumOut, softmaxOutOut, attentionOutOut, workspaceSize,
      executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionVarLenScoreV2)

aclnnStatus aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* key, const aclTensor* keyRope,
    const aclTensor* value, const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(
      query, queryRope, key, keyRope, value, realShiftOptional, dropMaskOptional, paddingMaskOptional,
      attenMaskOptional, /*sink=*/nullptr, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
      qStartIdxOptional, kvStartIdxOptional, scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout,
      innerPrecise, sparseMode, pseType, /*softmaxOutLayout=*/nullptr, softmaxMaxOut, softmaxSumOut, softmaxOutOut,
      attentionOutOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionVarLenScoreV3)

aclnnStatus aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    char* softmaxOutLayout, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(
      query, /*queryRope=*/nullptr, key, /*keyRope=*/nullptr, value, realShiftOptional, dropMaskOptional,
      paddingMaskOptional, attenMaskOptional, /*sink=*/nullptr, prefixOptional, actualSeqQLenOptional,
      actualSeqKvLenOptional, /*qStartIdx=*/nullptr, /*kvStartIdx=*/nullptr, scaleValue, keepProb, preTokens,
      nextTokens, headNum, inputLayout, innerPrecise, sparseMode, /*pseType=*/1, softmaxOutLayout, softmaxMaxOut,
      softmaxSumOut, softmaxOutOut, attentionOutOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionVarLenScoreV4)

aclnnStatus aclnnFlashAttentionVarLenScoreV5GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* key, const aclTensor* keyRope,
    const aclTensor* value, const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* sinkOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/, int64_t sparseMode, int64_t pseType,
    char* softmaxOutLayout, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return PrepareForward({.query = query,
                         .query_rope = queryRope,
                         .key = key,
                         .key_rope = keyRope,
                         .value = value,
                         .real_shift = realShiftOptional,
                         .drop_mask = dropMaskOptional,
                         .padding_mask = paddingMaskOptional,
                         .atten_mask = attenMaskOptional,
                         .sink = sinkOptional,
                         .softmax_max_out = softmaxMaxOut,
                         .softmax_sum_out = softmaxSumOut,
                         .softmax_out_out = softmaxOutOut,
                         .attention_out_out = attentionOutOut},
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
                         .softmax_layout_name = "softmaxOutLayout",
                         .softmax_layout = softmaxOutLayout},
                        workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnFlashAttentionVarLenScoreV5)
