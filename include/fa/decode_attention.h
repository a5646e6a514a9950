#ifndef FA_DECODE_ATTENTION_H_
#define FA_DECODE_ATTENTION_H_

/// @file
/// Attention of a decode step, in which few query rows see long keys, which may lie in pages.
/// @code{.cpp}
/// // 2 sequences of up to 4096 keys, of which 100 and 4000 are in use; 32 query heads share 8 key heads.
/// std::vector<float> q(2 * 32 * 128), out(q), k(2 * 8 * 4096 * 128), v(k);
/// const fa::TensorView keys = fa::View(k.data(), {2, 8, 4096, 128});
/// const fa::TensorView values = fa::View(v.data(), {2, 8, 4096, 128});
/// const int64_t lengths[] = {100, 4000};
/// fa::DecodeAttentionArgs args;
/// args.q = fa::View(q.data(), {2, 32, 1, 128});
/// args.k = {&keys, 1};
/// args.v = {&values, 1};
/// args.lengths_kv = lengths;
/// args.out = fa::View(out.data(), {2, 32, 1, 128});
/// return fa::DecodeAttention(args, {});
/// @endcode

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/mask.h"
#include "fa/pair_mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Shapes of antiquant_scale and antiquant_offset. With kPerToken and pages, k_scale has an entry per key, not per page
/// row.
enum class Antiquant : uint8_t {
  kPerTensorOrChannel,  ///< one number for all: [2]; or one per column: [2, Nkv, D], [2, Nkv, 1, D], [2, Nkv * D]
  kPerToken,            ///< one number per key: [2, B, S]; or one per key and head: [2, B, Nkv, S]
};

/// Tensors of a decode: few query rows against long keys. Shapes are written for BNSD; q and out have the shape of
/// DecodeAttentionOptions::layout. A tensor with null data is absent.
struct DecodeAttentionArgs {
  TensorView q;  ///< [B, N, Sq, D], or packed [T, N, D] (TND); f32, bf16, f16 or i8
  /// Keys and values of one type: the type of q, or compressed i8, f8e4m3, f8e5m2 or i4x8. If q is i8, keys and values
  /// are i8. An element of i4x8 has eight columns. So D and Dv are multiples of 8, and the last dimension is D / 8 or
  /// Dv / 8. N % Nkv == 0. Keys and values have one of three forms:
  /// - one tensor, [B, Nkv, S, D] and [B, Nkv, S, Dv];
  /// - one tensor per batch element, [1, Nkv, S_b, D] and [1, Nkv, S_b, Dv], each with its own address and length;
  /// - with block_table, one tensor each, of pages of any size: [pages, page size, Nkv * D]. With BNSD the pages may
  ///   also be [pages, Nkv, page size, D], with BSND and TND [pages, page size, Nkv, D].
  std::span<const TensorView> k;
  std::span<const TensorView> v;
  /// Optional, only for keys of the type of q: scores are Q K^T + Qr Kr^T. q_rope is [B, N, Sq, Drope]. k_rope has the
  /// form of k, with as many rows or pages.
  TensorView q_rope;
  std::span<const TensorView> k_rope;
  /// Number of keys in use per batch element, counted from key 0. A single entry holds for all elements. Empty stands
  /// for S, and is refused with block_table.
  std::span<const int64_t> lengths_kv;
  /// Number of query rows in use per batch element, counted from row 0. A single entry holds for all elements. Rows of
  /// `out` past the length are written as 0. Empty stands for Sq.
  std::span<const int64_t> lengths_q;
  /// TND, instead of lengths_q: inclusive prefix sums of the query rows of B sequences, which follow each other in q
  /// and out. Rows of `out` past the last sum are written as 0. Sequence b then stands for batch element b, and Sq for
  /// the most rows of a sequence.
  std::span<const int64_t> cu_q;
  /// i32 [B, n], n * page size >= the longest length. Key j of element b is row j % page size of page block_table[b][j
  /// / page size]. Entries for pages without a key in use are ignored.
  TensorView block_table;
  /// Scales of compressed keys and values, f32, f16 or bf16. An element x stands for (x + offset) * scale. The shape is
  /// [B|1, Nkv|1, S|1, groups|1] in every layout. With block_table it is [pages|1, Nkv|1, page size|1, groups|1],
  /// unless DecodeAttentionOptions::antiquant is kPerToken. `groups` divides the columns of a head. A dimension of 1
  /// holds for all. With few query rows, a scale of all columns of a head must be finite, or results are not finite.
  TensorView k_scale, v_scale;
  TensorView k_offset, v_offset;  ///< optional, the shape of the scale, f32, f16 or bf16; absent: 0
  /// Instead of k_scale and v_scale: f32, f16 or bf16, shapes as in Antiquant. Entry 0 is for keys, 1 for values.
  TensorView antiquant_scale;
  TensorView antiquant_offset;  ///< optional, shape and type of antiquant_scale; absent: 0
  /// Optional bias, type of q or f32 (q i8: f16 or f32), [B|1, N, 1|Sq, >= S]: the score is scale * QK + pse.
  TensorView pse;
  TensorView dense_mask;  ///< optional, u8, i8 or bool, 1 = drop: [B, >= S], [B, 1|Sq, >= S], [B, 1|N, 1|Sq, >= S]
  /// Instead of dense_mask: [B|1, N|Nkv|1, 1 or >= Sq, >= S], as in FlashAttention.
  const PairMask* pair_mask = nullptr;
  /// Optional, f32 [N], or one per row [B|1, N, Sq] (TND: [T, N]): the score of a virtual key whose value is 0.
  TensorView sink;
  TensorView deq_scale1;    ///< q i8: scale of Q K^T, one element, f32, or u64 whose low 32 bits are an f32
  TensorView quant_scale1;  ///< q i8: scale of the probabilities, one element, f32, of any sign
  TensorView deq_scale2;    ///< q i8: scale of P V, in one of the forms of deq_scale1
  /// Scale of an i8 output: one element or N * Dv (any shape, any strides), f32, or bf16 where q is bf16.
  TensorView quant_scale2;
  TensorView quant_offset2;  ///< optional, shape and type of quant_scale2
  /// [B, N, Sq, Dv], type of q (q i8: f16), or i8: saturate(rint(O * quant_scale2 + quant_offset2)).
  MutableTensorView out;
  MutableTensorView lse;  ///< optional, f32 [B, N, Sq] (TND: [T, N]): max + ln(sum), -inf for a row without keys
};

/// The options of a decode: everything but the tensors.
struct DecodeAttentionOptions {
  Layout layout = Layout::kBNSD;  ///< TND: only with block_table
  /// Number of query heads: needed for BSH and SBH, else checked against the tensors if > 0.
  int64_t heads = 0;
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  /// The mask counts only the rows and keys in use. So with Causal() the last query in use sees the last key in use.
  Mask mask = {};
  float softcap = 0;  ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse is added; 0: off
  Antiquant antiquant = Antiquant::kPerTensorOrChannel;
};

/// Computes out = softmax(mask(scale * Q K^T + pse)) V, as FlashAttention does.
///
/// With few query rows, compressed keys and values are read in place. For queries of 16 bits, levels from avx512_vnni
/// on may round the query and the probabilities to 16 bits: to integers for int8 and int4, and to bf16 for 8-bit floats
/// if the queries are bf16.
///
/// With up to 16 query rows, the keys of a batch element are cut into parts, which depend only on Sq and that element's
/// length. So the bits of a batch element do not depend on the form of keys, the order of pages, the batch or the
/// number of threads. FlashAttention gives the same bits for floating-point keys of the type of q. Inner products,
/// softmax and output are accumulated in f32 and rounded once.
///
/// Queries of i8 are computed as PromptFlashAttention computes them, with the same bits. Such queries need deq_scale1,
/// quant_scale1 and deq_scale2, and their keys are not cut into parts. softcap, sink and lse are refused with them.
///
/// Rows and pages that no query looks at are not read. A row without keys gives out = 0.
/// @return kInvalidArgument ("block_table[1][3]=9, want 0..7 (pages)") or kOutOfMemory. After an error nothing was
/// written. The function is re-entrant. It follows IncreFlashAttention of CANN, without that operator's limits of
/// sizes.
FA_API Status DecodeAttention(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options,
                              Context* context = nullptr);

/// Plans a call of DecodeAttention: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present, but never their contents. Tensors of k, v and k_rope
/// may have null data.
FA_API Result<PlanFor<DecodeAttentionArgs>> PlanDecodeAttention(const DecodeAttentionArgs& args,
                                                                const DecodeAttentionOptions& options,
                                                                Context* context = nullptr);

}  // namespace fa

#endif  // FA_DECODE_ATTENTION_H_
