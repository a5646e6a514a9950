#ifndef FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_H_
#define FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_H_

/// Attention of a prompt, or of queries over a cache: attentionOut = softmax(mask(scale * query key^T + pseShift))
/// value.
///
/// inputLayout is one of:
/// - BSH, BSND, BNSD, TND, NTD, and NSD, a BNSD of one batch element;
/// - one layout of inputs and another of attentionOut: BNSD_BSND, BSH_BNSD, BSND_BNSD, BSH_NBSD, BSND_NBSD, BNSD_NBSD
///   (NBSD is [N,B,S,D]), TND_NTD and NTD_TND.
///
/// query is float, float16 or bfloat16, with any strides. key and value are lists, of one tensor, or of one tensor per
/// batch element, each with batch size 1 and its own length. numKeyValueHeads 0 means numHeads.
///
/// With blockTable, int32 [B,n], key and value are pages in any layout: [blocks,blockSize,Nkv*D],
/// [blocks,Nkv,blockSize,D], or FRACTAL_NZ [blocks,Nkv,D/D0,blockSize,D0], where D0 elements have 32 bytes. blockSize 0
/// stands for the size that the tensors have. Pages [blocks,blockSize,Nkv,D] are accepted too, if the sizes fit only
/// that order.
///
/// Optional tensors:
/// - pseShift [B|1,N,1 or >=Sq,>=Skv], of the type of query or float;
/// - attenMask, bool, int8 or uint8, 1 = drop. sparseMode 0 and 1 take [Sq,Skv], [B|1,Sq,Skv] and [B|1,1,Sq,Skv], or
///   larger ones, and [B,Skv] for a single row. Modes 2, 3 and 4 take the triangle [2048,2048]. Mode 9 takes
///   [B,Sq,Sq], or in TND and NTD Sq_b * Sq_b elements per sequence, one sequence after another. In mode 9 the mask
///   covers the last Sq keys, and the keys before them are kept. (Mode 9 comes from documentation; no device has
///   confirmed it.)
/// - actualSeqLengths, actualSeqLengthsKv: the rows in use per batch element, or one number for all elements. In TND
///   and NTD they are inclusive prefix sums. Keys in pages always have lengths. Rows of query past their length, or
///   past the last sum, give 0 and an lse of +inf.
/// - queryPaddingSize, kvPaddingSize, int64 [1]: how many rows lie between the last row in use and the end of the
///   tensor. Both are read when the stream reaches the operator.
/// - quantScale2, quantOffset2, float: the scale and the offset of an int8 attentionOut;
/// - antiquantScale, antiquantOffset: scales and offsets of int8 keys and values, or of int4 ones in int32;
///   antiquantMode is 0 or 1.
///
/// A call with a single query row per batch element is special in layouts with an axis S and without queryRope. In
/// sparseMode 2 and 3 it keeps every key, and in mode 0 it has no band. In mode 4 it keeps its band; the device ignores
/// mode 4 there. In modes 2, 3 and 4 it needs no attenMask.
///
/// softmaxLse is float [B,N,Sq,1], or [T,N,1] in TND and NTD. It is written if softmaxLseFlag is true, and may be null
/// otherwise. A row without keys gives 0, and an lse of +inf. innerPrecise has no effect: softmax and sums are f32.
/// @return 161001 if a required pointer is null, 161002 for every other mistake. aclGetRecentErrMsg() names the
/// argument.
/// docs/aclnn.md says what is the same as on the device. fa/infer_attention.h says what is computed.
#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize, int64_t numHeads,
    double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
    int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode, bool softmaxLseFlag,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedInferAttentionScore(void* workspace, uint64_t workspaceSize,
                                                              aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNNOP_ACLNN_FUSED_INFER_ATTENTION_SCORE_H_
