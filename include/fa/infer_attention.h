#ifndef FA_INFER_ATTENTION_H_
#define FA_INFER_ATTENTION_H_

/// @file
/// Attention of prompts, chunks and decode steps, in every layout and form of cache of FusedInferAttentionScore.
/// @code{.cpp}
/// // Two packed sequences of 40 and 1 new rows; their 100 and 4000 keys lie in pages of 128 rows.
/// std::vector<float> q(41 * 32 * 128), out(q), k(33 * 8 * 128 * 128), v(k);
/// std::vector<int32_t> table(2 * 32);
/// for (int32_t page = 0; page < 32; ++page) table[32 + page] = page;
/// table[0] = 32;
/// const fa::TensorView keys = fa::View(k.data(), {33, 8, 128, 128}), values = fa::View(v.data(), {33, 8, 128, 128});
/// const int64_t rows[] = {40, 41}, lengths[] = {100, 4000};
/// fa::InferAttentionArgs args;
/// args.q = fa::View(q.data(), {41, 32, 128});
/// args.k = {&keys, 1};
/// args.v = {&values, 1};
/// args.cu_q = rows;
/// args.lengths_kv = lengths;
/// args.block_table = fa::View(table.data(), {2, 32});
/// args.out = fa::View(out.data(), {41, 32, 128});
/// return fa::InferAttention(args, {.layout = fa::Layout::kTND, .sparse_mode = 3});
/// @endcode

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/decode_attention.h"
#include "fa/export.h"
#include "fa/mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of fused inference. They are the tensors of DecodeAttentionArgs, some of which may have more forms here.
/// InferAttentionOptions::layout gives the order of dimensions. A tensor with null data is absent. P is the number of
/// rows in use of the shared prefix, or 0.
///
/// These members differ from DecodeAttentionArgs:
/// - q and q_rope have any layout, with any number of rows.
/// - q, k and v may have 8 bits: all are i8, or all are f8e4m3 (see q_scale). q_rope and k_rope are then f32, bf16 or
///   f16, and out is f32, bf16, f16 or i8.
/// - k, v and k_rope without pages are one tensor, or one tensor per batch element. A layout X_Y gives them the order
///   X. Packed keys are [Tkv, Nkv, D] (TND) or [Nkv, Tkv, D] (NTD).
/// - Every layout may have pages. The number of dimensions of k and v tells the form of the pages: [pages, page size,
///   Nkv * D], [pages, Nkv, page size, D], or NZ, [pages, Nkv, D / D0, page size, D0] with D0 = 32 bytes. Four
///   dimensions are [pages, page size, Nkv, D] if only that form fits InferAttentionOptions::block_size and heads_kv.
/// - lengths_q and lengths_kv are for layouts with a dimension S. lengths_kv is also for packed queries over pages.
/// - pse is [B|1, N, 1|>= Sq, >= P + S], type of q or f32.
/// - dense_mask is bool, i8 or u8; elements other than 0 are dropped. Modes 0 and 1 take [Sq, Sk], [B|1, Sq, Sk] or
///   [B|1, 1, Sq, Sk], or larger ones, and [B, Sk] if Sq is 1. Modes 2 to 4 take a mask [2048, 2048] with ones strictly
///   above the diagonal; the call checks its elements. Mode 9 takes [B, Sq, Sq], or with packed queries Sq * Sq numbers
///   per sequence, one after the other.
/// - pair_mask is [B|1, N|Nkv|1, 1 or >= Sq, >= P + S] in every layout. The call refuses it together with left padding
///   or mode 9.
/// - sink is of the type of q or f32, [N].
/// - lse may have a last dimension of 1.
struct InferAttentionArgs : DecodeAttentionArgs {
  /// Optional, f32: one scale per query row and head, in the shape of q without D ([B, S, N] for a layout that begins
  /// with BSH). q, k and v are then i8 or f8e4m3; f8e4m3 needs q_scale. With k_scale and v_scale, an element x of
  /// query, key or value stands for x times its scale. Products of rope parts are multiplied by q_scale * k_scale too,
  /// so the caller divides q_rope by q_scale * k_scale before the call. Scores are multiplied by `scale` in addition.
  ///
  /// Probabilities are exp(s - max), where max is the maximum of the whole row. They are multiplied by a factor p and
  /// rounded to the type of v. Row sums add the unrounded probabilities. For i8, p is 127. For f8e4m3, p is 448 or,
  /// with one k_scale per key (S > 1, or Antiquant::kPerToken), quant_scale1. quant_scale1 is then optional, f32, one
  /// element in (0, 448], 1 if absent. Offsets, antiquant_scale, deq_scale1, deq_scale2, pse, sink, prefix and left
  /// padding are refused.
  TensorView q_scale;
  std::span<const int64_t> cu_kv;  ///< packed keys without pages: inclusive prefix sums of their rows
  /// Left padding: one i64. Rows in use end this many rows before row S, so element b uses rows [S - padding - length,
  /// S - padding). A value below 0 counts as 0. q_padding needs lengths_q, and kv_padding needs lengths_kv. Both are
  /// read when the call runs. If the first key of an element would lie before row 0, the element has no keys if Sq is
  /// 1; otherwise the run fails. With left padding, pse is indexed by the rows and keys of the whole tensors, not by
  /// those in use. The same holds for dense_mask in modes 0 and 1. Mode 0 then ignores pre and next.
  TensorView q_padding, kv_padding;
  /// A prefix that all elements share: keys in front of the keys of every element. It has the layout of k and one
  /// batch element.
  TensorView k_prefix, v_prefix;
  std::span<const int64_t> length_prefix;  ///< one entry: number of rows of the prefix in use; empty stands for all
};

/// The options of fused inference: everything but the tensors.
struct InferAttentionOptions {
  Layout layout = Layout::kBNSD;  ///< any except SBH
  int64_t heads = 0;     ///< number of query heads: needed for layouts that begin with BSH, else checked if > 0
  int64_t heads_kv = 0;  ///< number of KV heads: checked if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  /// 0: `pre` and `next` bound a band aligned top-left, and the mask drops pairs. Without dense_mask and pair_mask
  /// every pair is kept. 1: dense_mask or pair_mask alone. 2: causal, aligned top-left. 3: causal, aligned
  /// bottom-right. 4: a band aligned bottom-right. 9: a tree of drafts. Each row keeps the keys before the last Sq_b.
  /// Of the last Sq_b keys, row i keeps what row i of dense_mask does not drop. No device has confirmed this mode.
  ///
  /// Batch element or sequence b has Sq_b query rows and Sk_b keys in use. The bottom-right corner is (Sq_b, P + Sk_b).
  /// Calls with a single query row per batch element, a layout with a dimension S and no q_rope are special. Their rows
  /// keep every key in modes 2 and 3, and mode 0 ignores pre and next. Mode 4 keeps its band, although the device
  /// ignores mode 4 in such calls.
  int64_t sparse_mode = 0;
  int64_t pre = Mask::kUnlimited, next = Mask::kUnlimited;  ///< modes 0 and 4
  int64_t block_size = 0;                                   ///< rows per page: checked if > 0
  Antiquant antiquant = Antiquant::kPerTensorOrChannel;
  /// The lse of a row without keys: -inf, or +inf as on the device. Rows past a length have the lse +inf if this value
  /// is +inf, and otherwise 0. A sink makes lse finite, except in an element that has no keys at all.
  float lse_without_keys = -std::numeric_limits<float>::infinity();
};

/// Computes out = softmax(mask(scale * (Q K^T + Qr Kr^T) + pse)) V per batch element or packed sequence.
///
/// Without q_scale, each sequence gets the bits that DecodeAttention or FlashAttention would give it. The sequence's
/// number of query rows decides which of the two. Bits do not depend on the layout, the form of the cache, the order of
/// pages, the batch or the number of threads. With q_scale, inner products of i8 are exact if each KV head has one
/// scale and at most 1024 columns.
///
/// A row without keys gives out = 0. Rows past a length, and packed rows past the last sequence, are written as 0.
/// @return kInvalidArgument ("block_table[1][3]=9, want 0..7 (pages)") or kOutOfMemory. After an error nothing was
/// written. The function is re-entrant. It follows FusedInferAttentionScore of CANN, without its size limits.
FA_API Status InferAttention(const InferAttentionArgs& args, const InferAttentionOptions& options,
                             Context* context = nullptr);

/// Plans a call of InferAttention: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present, but never their contents. Tensors of k, v and k_rope
/// may have null data.
FA_API Result<PlanFor<InferAttentionArgs>> PlanInferAttention(const InferAttentionArgs& args,
                                                              const InferAttentionOptions& options,
                                                              Context* context = nullptr);

/// Returns the bytes of workspace that suffice for a call whose lengths and prefix sums have any valid values. Of the
/// lengths and prefix sums in `args`, only the numbers of entries count.
FA_API Result<size_t> InferAttentionMaxWorkspace(const InferAttentionArgs& args, const InferAttentionOptions& options,
                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_INFER_ATTENTION_H_
