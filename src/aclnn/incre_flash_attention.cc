// The versions of the decode differ only in their parameters.
#include "aclnn/operations/decode_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_incre_flash_attention.h"
#include "aclnnop/aclnn_incre_flash_attention_v2.h"
#include "aclnnop/aclnn_incre_flash_attention_v3.h"
#include "aclnnop/aclnn_incre_flash_attention_v4.h"

using fa::aclnn::PrepareDecode;

aclnnStatus aclnnIncreFlashAttentionGetWorkspaceSize(const aclTensor* query, const aclTensorList* key,
                                                     const aclTensorList* value, const aclTensor* pseShift,
                                                     const aclTensor* attenMask, const aclIntArray* actualSeqLengths,
                                                     int64_t numHeads, double scaleValue, char* inputLayout,
                                                     int64_t numKeyValueHeads, const aclTensor* attentionOut,
                                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareDecode({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnIncreFlashAttention)

aclnnStatus aclnnIncreFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, char* inputLayout, int64_t numKeyValueHeads,
    const aclTensor* attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareDecode({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .dequant_scale1 = dequantScale1,
                        .quant_scale1 = quantScale1,
                        .dequant_scale2 = dequantScale2,
                        .quant_scale2 = quantScale2,
                        .quant_offset2 = quantOffset2,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnIncreFlashAttentionV2)

aclnnStatus aclnnIncreFlashAttentionV3GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, int64_t numHeads, double scaleValue, char* inputLayout, int64_t numKeyValueHeads,
    int64_t blockSize, int64_t /*innerPrecise*/, const aclTensor* attentionOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return PrepareDecode({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .dequant_scale1 = dequantScale1,
                        .quant_scale1 = quantScale1,
                        .dequant_scale2 = dequantScale2,
                        .quant_scale2 = quantScale2,
                        .quant_offset2 = quantOffset2,
                        .antiquant_scale = antiquantScale,
                        .antiquant_offset = antiquantOffset,
                        .block_table = blocktable,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads,
                        .block_size = blockSize,
                        .has_antiquant_scale = true},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnIncreFlashAttentionV3)

aclnnStatus aclnnIncreFlashAttentionV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads, double scaleValue, char* inputLayout,
    int64_t numKeyValueHeads, int64_t blockSize, int64_t /*innerPrecise*/, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PrepareDecode({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .dequant_scale1 = dequantScale1,
                        .quant_scale1 = quantScale1,
                        .dequant_scale2 = dequantScale2,
                        .quant_scale2 = quantScale2,
                        .quant_offset2 = quantOffset2,
                        .antiquant_scale = antiquantScale,
                        .antiquant_offset = antiquantOffset,
                        .block_table = blocktable,
                        .kv_padding_size = kvPaddingSize,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads,
                        .block_size = blockSize,
                        .has_antiquant_scale = true},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnIncreFlashAttentionV4)
