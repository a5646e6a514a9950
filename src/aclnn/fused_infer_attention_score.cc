// The versions of fused inference differ only in their parameters. Each version has the parameters of the version
// before it and a few more, so the lists below grow by version.
#include "aclnn/operations/infer_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_fused_infer_attention_score.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v2.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v3.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v4.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v5.h"

using fa::aclnn::InferWorkspace;
using fa::aclnn::PrepareInfer;

// The parameters of a version are three lists: its tensors and arrays, its numbers, and FA_OUTPUTS.
#define FA_TENSORS_1                                                                                          \
  const aclTensor *query, const aclTensorList *key, const aclTensorList *value, const aclTensor *pseShift,    \
      const aclTensor *attenMask, const aclIntArray *actualSeqLengths, const aclIntArray *actualSeqLengthsKv, \
      const aclTensor *deqScale1, const aclTensor *quantScale1, const aclTensor *deqScale2,                   \
      const aclTensor *quantScale2, const aclTensor *quantOffset2, const aclTensor *antiquantScale,           \
      const aclTensor *antiquantOffset, const aclTensor *blockTable, const aclTensor *queryPaddingSize,       \
      const aclTensor *kvPaddingSize
#define FA_TENSORS_2                                                                                                 \
  FA_TENSORS_1, const aclTensor *keyAntiquantScale, const aclTensor *keyAntiquantOffset,                             \
      const aclTensor *valueAntiquantScale, const aclTensor *valueAntiquantOffset, const aclTensor *keySharedPrefix, \
      const aclTensor *valueSharedPrefix, const aclIntArray *actualSharedPrefixLen
#define FA_TENSORS_3 \
  FA_TENSORS_2, const aclTensor *queryRope, const aclTensor *keyRope, const aclTensor *keyRopeAntiquantScale
#define FA_TENSORS_4 FA_TENSORS_3, const aclTensor *dequantScaleQuery, const aclTensor *learnableSink
#define FA_TENSORS_5 FA_TENSORS_4, const aclIntArray *qStartIdx, const aclIntArray *kvStartIdx
#define FA_NUMBERS_1                                                                             \
  int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char *inputLayout, \
      int64_t numKeyValueHeads, int64_t sparseMode, int64_t /*innerPrecise*/, int64_t blockSize, \
      int64_t antiquantMode, bool softmaxLseFlag
#define FA_NUMBERS_2 FA_NUMBERS_1, int64_t keyAntiquantMode, int64_t valueAntiquantMode
#define FA_NUMBERS_3 FA_NUMBERS_2
#define FA_NUMBERS_4 FA_NUMBERS_3, int64_t queryQuantMode
#define FA_NUMBERS_5 FA_NUMBERS_4, int64_t pseType
#define FA_OUTPUTS \
  const aclTensor *attentionOut, const aclTensor *softmaxLse, uint64_t *workspaceSize, aclOpExecutor **executor

// The members of InferTensors and of InferCall that a version sets.
#define FA_SET_TENSORS_1                                                                                \
  .attention_out = attentionOut, .softmax_lse = softmaxLse, .query = query, .key = key, .value = value, \
  .pse_shift = pseShift, .atten_mask = attenMask, .actual_seq_lengths = actualSeqLengths,               \
  .actual_seq_lengths_kv = actualSeqLengthsKv, .deq_scale1 = deqScale1, .quant_scale1 = quantScale1,    \
  .deq_scale2 = deqScale2, .quant_scale2 = quantScale2, .quant_offset2 = quantOffset2,                  \
  .antiquant_scale = antiquantScale, .antiquant_offset = antiquantOffset, .block_table = blockTable,    \
  .query_padding_size = queryPaddingSize, .kv_padding_size = kvPaddingSize
#define FA_SET_TENSORS_2                                                                                          \
  FA_SET_TENSORS_1, .key_antiquant_scale = keyAntiquantScale, .key_antiquant_offset = keyAntiquantOffset,         \
                    .value_antiquant_scale = valueAntiquantScale, .value_antiquant_offset = valueAntiquantOffset, \
                    .key_shared_prefix = keySharedPrefix, .value_shared_prefix = valueSharedPrefix,               \
                    .actual_shared_prefix_len = actualSharedPrefixLen
#define FA_SET_TENSORS_3 \
  FA_SET_TENSORS_2, .query_rope = queryRope, .key_rope = keyRope, .key_rope_antiquant_scale = keyRopeAntiquantScale
#define FA_SET_TENSORS_4 FA_SET_TENSORS_3, .dequant_scale_query = dequantScaleQuery, .learnable_sink = learnableSink
#define FA_SET_TENSORS_5 FA_SET_TENSORS_4, .q_start_idx = qStartIdx, .kv_start_idx = kvStartIdx
#define FA_SET_NUMBERS_1                                                                                \
  .num_heads = numHeads, .scale_value = scaleValue, .pre_tokens = preTokens, .next_tokens = nextTokens, \
  .input_layout = inputLayout, .num_key_value_heads = numKeyValueHeads, .sparse_mode = sparseMode,      \
  .block_size = blockSize, .antiquant_mode = antiquantMode, .softmax_lse_flag = softmaxLseFlag
#define FA_SET_NUMBERS_2 \
  FA_SET_NUMBERS_1, .key_antiquant_mode = keyAntiquantMode, .value_antiquant_mode = valueAntiquantMode
#define FA_SET_NUMBERS_3 FA_SET_NUMBERS_2
#define FA_SET_NUMBERS_4 FA_SET_NUMBERS_3, .query_quant_mode = queryQuantMode
#define FA_SET_NUMBERS_5 FA_SET_NUMBERS_4, .pse_type = pseType

// Defines the first phase of version `number`. `workspace` is the InferWorkspace that the phase reports.
#define FA_DEFINE_PREPARE(function, number, workspace)                                                             \
  aclnnStatus function(FA_TENSORS_##number, FA_NUMBERS_##number, FA_OUTPUTS) {                                     \
    return PrepareInfer({FA_SET_TENSORS_##number}, {FA_SET_NUMBERS_##number}, workspace, workspaceSize, executor); \
  }
#define FA_DEFINE_VERSION(function, number)                                              \
  FA_DEFINE_PREPARE(function##GetWorkspaceSize, number, InferWorkspace::kOfTheseLengths) \
  FA_DEFINE_EXECUTE(function)

FA_DEFINE_VERSION(aclnnFusedInferAttentionScore, 1)
FA_DEFINE_VERSION(aclnnFusedInferAttentionScoreV2, 2)
FA_DEFINE_VERSION(aclnnFusedInferAttentionScoreV3, 3)
FA_DEFINE_VERSION(aclnnFusedInferAttentionScoreV4, 4)
FA_DEFINE_VERSION(aclnnFusedInferAttentionScoreV5, 5)
FA_DEFINE_PREPARE(aclnnFusedInferAttentionScoreV2GetMaxWorkspaceSize, 2, InferWorkspace::kOfAnyLengths)
FA_DEFINE_PREPARE(aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize, 3, InferWorkspace::kOfAnyLengths)
FA_DEFINE_PREPARE(aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize, 4, InferWorkspace::kOfAnyLengths)
FA_DEFINE_PREPARE(aclnnFusedInferAttentionScoreV5GetMaxWorkspaceSize, 5, InferWorkspace::kOfAnyLengths)
