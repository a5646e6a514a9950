#ifndef FA_PROMPT_FLASH_ATTENTION_H_
#define FA_PROMPT_FLASH_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/mask.h"
#include "fa/options.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of prompt attention, the forward of inference. Shapes are written for BNSD; each tensor has the shape of
/// PromptAttentionOptions::layout. Null data = absent.
struct PromptAttentionArgs {
  TensorView q;       ///< [B, N, Sq, D]; f32, bf16, f16 or i8
  TensorView k;       ///< [B, Nkv, Sk, D], type of q; N % Nkv == 0
  TensorView v;       ///< [B, Nkv, Sk, Dv], type of q
  TensorView q_rope;  ///< optional, [B, N, Sq, Drope]: scores are Q K^T + Qr Kr^T
  TensorView k_rope;  ///< with q_rope, [B, Nkv, Sk, Drope]
  /// By PromptAttentionOptions::pse_type; added to scale * Q K^T: [B|1, N, >= Sq, >= Sk], type of q or f32 (q i8: f16
  /// or f32); TND and the other types as FlashAttention.
  TensorView pse;
  /// u8, bool or i8, not 0 = drop: [>= Sq, >= Sk], [B|1, >= Sq, >= Sk], [B|1, 1, >= Sq, >= Sk] or
  /// [B, N, >= Sq, >= Sk]; TND [>= maxSq, >= maxSk].
  TensorView dense_mask;
  TensorView sink;  ///< optional, f32 [N]: a virtual key of that score and value 0

  // Quantization; which of these a call takes follows from the types of q and out (see PromptFlashAttention).
  TensorView deq_scale1;     ///< one element, f32, or u64 whose low 32 bits are those of an f32: of Q K^T
  TensorView quant_scale1;   ///< one element, f32, of any sign: of the probabilities
  TensorView deq_scale2;     ///< as deq_scale1: of P V
  TensorView quant_scale2;   ///< one element or N * Dv (any shape, any strides): of the output; f32, or
                             ///< bf16 where q is bf16
  TensorView quant_offset2;  ///< optional, shape and type of quant_scale2

  /// Padded layouts: rows of each batch element that are in use, from row 0 on, 0..S. One entry: of all; none: S;
  /// entries past the batch are not looked at. Q rows past it are written 0 in every output, keys past it
  /// are never read.
  std::span<const int64_t> lengths_q, lengths_kv;
  std::span<const int64_t> cu_q, cu_kv;  ///< TND: inclusive prefix sums, as AttentionArgs
  MutableTensorView out;                 ///< [B, N, Sq, Dv]: type of q, i8, or (q i8) f16
  MutableTensorView softmax_max;         ///< optional, f32 [B, N, Sq] (TND [T, N]), as FlashAttention
  MutableTensorView softmax_sum, lse;    ///< optional, f32 of the same shape
};

/// Everything of a prompt call that is not a tensor.
struct PromptAttentionOptions {
  Layout layout = Layout::kBNSD;
  int64_t heads = 0;     ///< query heads; needed for BSH and SBH, checked against the tensors elsewhere if > 0
  int64_t heads_kv = 0;  ///< checked against the tensors if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D); any finite value
  Mask mask =
      {};  ///< any; one made by Mask::FromSparseMode must be of mode 0 to 4, its band is anchored at the lengths
  PseType pse_type = PseType::kScaleThenAdd;
  int64_t q_start = 0, kv_start = 0;  ///< added to i and j in the distance of pse types 2 and 3
  float softcap = 0;                  ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse; 0: off
};

/// out = softmax(mask(scale * Q K^T + pse)) V over the rows in use; masks that are anchored bottom-right are anchored
/// at the lengths. As FlashAttention, with the same bits; see there for rows without keys, aliasing and non-finite
/// inputs.
///
/// Types of q -> out, the scales they need, and those they refuse:
///   same type (f32, bf16, f16)   none; all five are refused
///   bf16, f16, f32 -> i8         quant_scale2, quant_offset2 optional; the other three are refused
///   i8 -> f16                    deq_scale1, quant_scale1, deq_scale2; quant_scale2 and quant_offset2 are refused
///   i8 -> i8                     deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2 optional
///
/// int8 inputs have no split heads, sinks, statistics, softcap nor other pse types than kScaleThenAdd.
///
/// int8 inputs, with f32 intermediates and the maximum m of the whole row, so that no result depends on tiles:
///   S = QK * deq_scale1 * scale + pse      QK exact
///   P = exp(S - m), l = sum P              of unrounded P
///   P8 = saturate(rint(P * quant_scale1))  to nearest even, -128..127
///   O = P8 V * deq_scale2 / l              P8 V exact
/// All instruction sets give the same integers. int8 outputs: saturate(rint(O * quant_scale2 + quant_offset2)); a NaN
/// becomes -128. Rows past the length are written 0 whatever the offset; a row that the dense mask leaves without keys
/// has O = 0.
///
/// @return kInvalidArgument ("quant_scale2: missing, want it (out.dtype=i8)"), kOutOfMemory; then nothing was written.
/// Refused as on the device: an offset where the mask's rule leaves a row in use without keys, whose 0 it would move;
/// an int8 output in mode 4 with pre or next below 0; scales that are not finite.
/// Re-entrant. Follows PromptFlashAttention of CANN.
FA_API Status PromptFlashAttention(const PromptAttentionArgs& args, const PromptAttentionOptions& options,
                                   Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present
/// (data != nullptr), never their contents.
FA_API Result<PlanFor<PromptAttentionArgs>> PlanPromptFlashAttention(const PromptAttentionArgs& args,
                                                                     const PromptAttentionOptions& options,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_PROMPT_FLASH_ATTENTION_H_
