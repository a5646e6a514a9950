#ifndef FA_DECODE_ATTENTION_H_
#define FA_DECODE_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// What the scales and offsets of int8 keys and values belong to.
enum class Antiquant : uint8_t {
  kPerTensorOrChannel,  ///< [2], or one per column: [2, Nkv, D], [2, Nkv, 1, D], [2, Nkv * D]
  kPerToken,            ///< one per key: [2, B, S]
};

/// Tensors of a decode: few query rows against long keys. Shapes are written for BNSD; q and out have the shape of
/// DecodeAttentionOptions::layout. Null data = absent.
struct DecodeAttentionArgs {
  TensorView q;  ///< [B, N, Sq, D]; f32, bf16, f16 or i8
  /// Keys and values, in one of three forms, each of the type of q or i8 (q i8: i8); N % Nkv == 0:
  /// - one tensor, [B, Nkv, S, D] and [B, Nkv, S, Dv];
  /// - one tensor per batch element, [1, Nkv, S_b, D] and [1, Nkv, S_b, Dv], each with its own address and length;
  /// - with block_table, one tensor of pages of any size: [pages, page size, Nkv * D], and for BNSD also
  ///   [pages, Nkv, page size, D], for BSND [pages, page size, Nkv, D].
  std::span<const TensorView> k;
  std::span<const TensorView> v;
  /// Optional, for keys of the type of q: the second part of split heads, [B, N, Sq, Drope], and k_rope in the form of
  /// k with as many rows and pages. Scores are Q K^T + Qr Kr^T.
  TensorView q_rope;
  std::span<const TensorView> k_rope;
  /// Number of keys in use of each batch element, from key 0 on; 1 entry: the same for all. Empty: S. Needed with
  /// block_table.
  std::span<const int64_t> lengths_kv;
  /// The same for queries; rows of `out` past the length are written as 0. Empty: Sq.
  std::span<const int64_t> lengths_q;
  /// i32 [B, n], n * page size >= the longest length: key j of element b is row j % page size of page
  /// block_table[b][j / page size]. Entries of pages without a key in use are ignored.
  TensorView block_table;
  TensorView antiquant_scale;   ///< of i8 keys and values with a q of another type, f32, f16 or bf16: x stands for (x +
                                ///< offset) * scale; entry 0 for keys, 1 for values, shapes as Antiquant says
  TensorView antiquant_offset;  ///< optional, shape and type of antiquant_scale; absent: 0
  TensorView pse;               ///< optional bias, type of q or f32 (q i8: f16 or f32), [B|1, N, 1|Sq, >= S]:
                                ///< scale * QK + pse
  TensorView dense_mask;     ///< optional, u8, i8 or bool, 1 = drop: [B, >= S], [B, 1|Sq, >= S], [B, 1|N, 1|Sq, >= S]
  TensorView sink;           ///< optional, f32 [N]: a virtual key of that score and value 0
  TensorView deq_scale1;     ///< q i8: one element, f32, or u64 whose low 32 bits are those of an f32: of Q K^T
  TensorView quant_scale1;   ///< q i8: one element, f32, of any sign: of the probabilities
  TensorView deq_scale2;     ///< q i8: as deq_scale1: of P V
  TensorView quant_scale2;   ///< of an i8 output: one element or N * Dv (any shape, any strides), f32, or bf16
                             ///< where q is bf16
  TensorView quant_offset2;  ///< optional, shape and type of quant_scale2
  MutableTensorView out;     ///< [B, N, Sq, Dv], type of q (q i8: f16), or i8:
                             ///< saturate(rint(O * quant_scale2 + quant_offset2))
  MutableTensorView lse;     ///< optional, f32 [B, N, Sq]: max + ln(sum), -inf for a row without keys
};

/// Everything of a decode that is not a tensor.
struct DecodeAttentionOptions {
  Layout layout = Layout::kBNSD;  ///< any but TND
  int64_t heads = 0;              ///< query heads; needed for BSH and SBH, checked against the tensors elsewhere if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  Mask mask = {};                   ///< by the lengths in use: Causal() lets the last query see the last key
  float softcap = 0;                ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse; 0: off
  Antiquant antiquant = Antiquant::kPerTensorOrChannel;
};

/// out = softmax(mask(scale * Q K^T + pse)) V, as FlashAttention computes it; keys of up to 16 query rows are cut into
/// parts by Sq and the element's own length alone. A batch element gives the same bits in all three forms of keys, in
/// any order of pages, alone or in any batch, with any number of threads. Inner products, softmax and output are
/// accumulated in f32 and rounded once.
///
/// Queries of i8 are computed as PromptFlashAttention does, with the same bits: the scales of the products are
/// required, softcap, sink and lse are refused, and a row's keys are one part.
///
/// Rows and pages that no query looks at are not read. A row without keys gives out = 0.
/// @return kInvalidArgument ("block_table[1][3]=9, want 0..7 (pages)"), kOutOfMemory; then nothing was written.
/// Re-entrant. Follows IncreFlashAttention of CANN, without its limits of sizes.
FA_API Status DecodeAttention(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options,
                              Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present,
/// never their contents. Tensors of k, v and k_rope may have null data.
FA_API Result<PlanFor<DecodeAttentionArgs>> PlanDecodeAttention(const DecodeAttentionArgs& args,
                                                                const DecodeAttentionOptions& options,
                                                                Context* context = nullptr);

}  // namespace fa

#endif  // FA_DECODE_ATTENTION_H_
