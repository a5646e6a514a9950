// The versions of the dense backward differ only in their parameters.
#include "aclnn/operations/backward_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"

using fa::aclnn::Execute;
using fa::aclnn::PrepareBackward;

aclnnStatus aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t /*innerPrecise*/, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
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
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
                         {.prefix = prefixOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode},
                         workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionScoreGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                         aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/,
    int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
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
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
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

aclnnStatus aclnnFlashAttentionScoreGradV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                           aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

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

aclnnStatus aclnnFlashAttentionScoreGradV3(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                           aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t /*innerPrecise*/, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
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
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
                         {.packed = true,
                          .prefix = prefixOptional,
                          .actual_seq_q_len = actualSeqQLenOptional,
                          .actual_seq_kv_len = actualSeqKvLenOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode},
                         workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                  aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/,
    int64_t sparseMode, int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
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
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
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
                          .pse_type = pseType},
                         workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* queryRope, const aclTensor* keyIn, const aclTensor* keyInRope,
    const aclTensor* value, const aclTensor* dy, const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t /*innerPrecise*/, int64_t sparseMode, int64_t pseType,
    const aclTensor* dqOut, const aclTensor* dqRopeOut, const aclTensor* dkOut, const aclTensor* dkRopeOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
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
                          .dq_out = dqOut,
                          .dq_rope_out = dqRopeOut,
                          .dk_out = dkOut,
                          .dk_rope_out = dkRopeOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
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
                          .pse_type = pseType},
                         workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV3(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t /*innerPrecise*/, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut,
    const aclTensor* dvOut, const aclTensor* dpseOut, char* softmaxInLayout, uint64_t* workspaceSize,
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
                          .dq_out = dqOut,
                          .dk_out = dkOut,
                          .dv_out = dvOut,
                          .dpse_out = dpseOut},
                         {.packed = true,
                          .prefix = prefixOptional,
                          .actual_seq_q_len = actualSeqQLenOptional,
                          .actual_seq_kv_len = actualSeqKvLenOptional,
                          .scale_value = scaleValue,
                          .keep_prob = keepProb,
                          .pre_tokens = preTokens,
                          .next_tokens = nextTokens,
                          .head_num = headNum,
                          .input_layout = inputLayout,
                          .sparse_mode = sparseMode,
                          .softmax_layout_name = "softmaxInLayout",
                          .softmax_layout = softmaxInLayout},
                         workspaceSize, executor);
}

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV4(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

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

aclnnStatus aclnnFlashAttentionUnpaddingScoreGradV5(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                    aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}
