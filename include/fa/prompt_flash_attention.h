#ifndef FA_PROMPT_FLASH_ATTENTION_H_
#define FA_PROMPT_FLASH_ATTENTION_H_

/// @file
/// Attention of a prompt, the forward of inference, with lengths per sequence and int8 tensors.
/// @code{.cpp}
/// // 2 prompts, padded to 128 rows, of which 100 and 128 are in use.
/// std::vector<float> q(2 * 8 * 128 * 64), k(q), v(q), out(q);
/// const fa::Dims shape = {2, 8, 128, 64};
/// const int64_t lengths[] = {100, 128};
/// fa::PromptAttentionArgs args;
/// args.q = fa::View(q.data(), shape);
/// args.k = fa::View(k.data(), shape);
/// args.v = fa::View(v.data(), shape);
/// args.lengths_q = args.lengths_kv = lengths;
/// args.out = fa::View(out.data(), shape);
/// return fa::PromptFlashAttention(args, {.mask = fa::Mask::Causal()});
/// @endcode

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/mask.h"
#include "fa/options.h"
#include "fa/pair_mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of prompt attention. Shapes are written for BNSD; each tensor has the shape of
/// PromptAttentionOptions::layout. A tensor with null data is absent.
struct PromptAttentionArgs {
  TensorView q;       ///< [B, N, Sq, D]; f32, bf16, f16 or i8
  TensorView k;       ///< [B, Nkv, Sk, D], type of q; N % Nkv == 0
  TensorView v;       ///< [B, Nkv, Sk, Dv], type of q
  TensorView q_rope;  ///< optional, [B, N, Sq, Drope]: scores are Q K^T + Qr Kr^T
  TensorView k_rope;  ///< with q_rope, [B, Nkv, Sk, Drope]
  /// The bias, as PromptAttentionOptions::pse_type says. With kScaleThenAdd it is [B|1, N, >= Sq, >= Sk], of the type
  /// of q or f32 (q i8: f16 or f32). With TND, and with the other types, it is as in FlashAttention.
  TensorView pse;
  /// The dense mask, u8, bool or i8; a value other than 0 drops the pair. Its shape is [>= Sq, >= Sk], [B|1, >= Sq, >=
  /// Sk], [B|1, 1, >= Sq, >= Sk] or [B, N, >= Sq, >= Sk]; with TND it is [>= maxSq, >= maxSk].
  TensorView dense_mask;
  /// Instead of dense_mask: [B|1, N|Nkv|1, 1 or >= Sq, >= Sk], as in FlashAttention.
  const PairMask* pair_mask = nullptr;
  TensorView sink;  ///< optional, f32, shapes as in AttentionArgs: the score of a virtual key whose value is 0

  // Scales and an offset for int8 tensors. The types of q and out decide which of them a call takes (see
  // PromptFlashAttention).
  TensorView deq_scale1;    ///< scale of Q K^T: one element, f32, or u64 whose low 32 bits are an f32
  TensorView quant_scale1;  ///< scale of the probabilities: one element, f32, of any sign
  TensorView deq_scale2;    ///< scale of P V, in one of the forms of deq_scale1
  /// Scale of the output: one element or N * Dv (any shape, any strides); f32, or bf16 where q is bf16.
  TensorView quant_scale2;
  TensorView quant_offset2;  ///< optional, shape and type of quant_scale2

  /// Padded layouts: the number of rows in use per batch element, counted from row 0, 0..S. A single entry holds for
  /// all elements. Empty stands for S. Entries past the batch are ignored. Rows of q past the length are written 0 in
  /// every output; keys past it are never read.
  std::span<const int64_t> lengths_q, lengths_kv;
  std::span<const int64_t> cu_q, cu_kv;  ///< TND: inclusive prefix sums, as in AttentionArgs
  MutableTensorView out;                 ///< [B, N, Sq, Dv]: type of q, i8, or (q i8) f16
  MutableTensorView softmax_max;         ///< optional, f32 [B, N, Sq] (TND [T, N]), as in FlashAttention
  MutableTensorView softmax_sum, lse;    ///< optional, f32 in the shape of softmax_max
};

/// The options of a prompt call: everything but its tensors.
struct PromptAttentionOptions {
  Layout layout = Layout::kBNSD;
  int64_t heads = 0;     ///< number of query heads, needed for BSH and SBH; with other layouts it is checked if > 0
  int64_t heads_kv = 0;  ///< number of KV heads: checked against the tensors if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  /// Any mask; a mask from Mask::FromSparseMode must have mode 0 to 4, and its band is aligned at the lengths in use.
  Mask mask = {};
  PseType pse_type = PseType::kScaleThenAdd;
  int64_t q_start = 0, kv_start = 0;  ///< added to i and j in the distance of pse types 2 and 3
  float softcap = 0;                  ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse is added; 0: off
};

/// Computes out = softmax(mask(scale * Q K^T + pse)) V over the rows in use. Masks that are aligned bottom-right are
/// aligned to the last query row and the last key in use. FlashAttention gives the same bits. Its comment describes
/// rows without keys, aliasing and non-finite inputs.
///
/// Each line has the types of q and out, the scales that a call with these types needs, and those that it refuses:
///   same type (f32, bf16, f16)   none; all five are refused
///   bf16, f16, f32 -> i8         quant_scale2, quant_offset2 optional; the other three are refused
///   i8 -> f16                    deq_scale1, quant_scale1, deq_scale2; quant_scale2 and quant_offset2 are refused
///   i8 -> i8                     deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2 optional
///
/// With int8 inputs, split heads, sinks, statistics, softcap and pse types other than kScaleThenAdd are refused.
/// Intermediates are f32, and m is the maximum of the whole row, so no result depends on tiles:
///   S = QK * deq_scale1 * scale + pse      QK is exact
///   P = exp(S - m), l = sum P              the sum of unrounded P
///   P8 = saturate(rint(P * quant_scale1))  to nearest even, -128..127
///   O = P8 V * deq_scale2 / l              P8 V is exact
/// All instruction sets give the same integers. An int8 output is saturate(rint(O * quant_scale2 + quant_offset2)); a
/// NaN becomes -128. Rows past the length are written 0, whatever the offset. A row that the dense mask leaves without
/// keys has O = 0.
///
/// The function is re-entrant. It follows PromptFlashAttention of CANN.
///
/// @return kInvalidArgument ("quant_scale2: missing, want it (out.dtype=i8)") or kOutOfMemory. After an error nothing
/// was written. As on the device, the call is refused if
/// - there is an offset, and `mask` leaves a row in use without keys: the row's result would be the offset, not 0;
/// - the output is int8, the mode is 4, and pre or next is below 0;
/// - a scale is not finite.
FA_API Status PromptFlashAttention(const PromptAttentionArgs& args, const PromptAttentionOptions& options,
                                   Context* context = nullptr);

/// Plans a call of PromptFlashAttention: validates it, cuts it into tiles and lays out its workspace. The function
/// reads shapes, strides, types, lengths and which tensors are present (data != nullptr), but never their contents.
FA_API Result<PlanFor<PromptAttentionArgs>> PlanPromptFlashAttention(const PromptAttentionArgs& args,
                                                                     const PromptAttentionOptions& options,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_PROMPT_FLASH_ATTENTION_H_
