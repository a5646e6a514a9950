#ifndef FA_SHARED_KV_ATTENTION_H_
#define FA_SHARED_KV_ATTENTION_H_

/// @file
/// Attention over a window of original keys and over compressed keys, in one softmax, forward.
/// @code{.cpp}
/// // Each token attends to the last 128 keys, and to its list of compressed keys: one key stands for 4 tokens.
/// std::vector<float> q(512 * 16 * 64), ori(512 * 64), cmp(128 * 64), out(q), sink(16);
/// std::vector<int32_t> indices(512 * 32);  // a result of LightningIndexer
/// fa::SharedKvArgs args;
/// args.q = fa::View(q.data(), {1, 512, 16, 64});  // [B, S1, N, D]
/// args.ori_kv = fa::View(ori.data(), {1, 512, 1, 64});
/// args.cmp_kv = fa::View(cmp.data(), {1, 128, 1, 64});
/// args.cmp_indices = fa::View(indices.data(), {1, 512, 1, 32});
/// args.sink = fa::View(sink.data(), {16});
/// args.out = fa::View(out.data(), {1, 512, 16, 64});
/// return fa::SharedKvAttention(
///     args, {.cmp_ratio = 4, .ori_mask = fa::SparseMask::kBand, .window_left = 127, .window_right = 0});
/// @endcode

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of attention over original and compressed keys. A key row is also its value, and all heads share it. At
/// least one of ori_kv and cmp_kv is given. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. A tensor
/// with null data is absent.
struct SharedKvArgs {
  TensorView q;  ///< [B, S1, N, D]; f32, bf16 or f16
  /// The original keys, optional, [B, S2, 1, D], type of q; with ori_block_table, pages of any size: [blocks, block
  /// size, 1, D].
  TensorView ori_kv;
  TensorView cmp_kv;  ///< the compressed keys, optional, as ori_kv, with cmp_block_table for pages
  /// Lists of keys, optional, i32 or i64 [B, S1, 1, K]. Entries of ori_indices are numbers of original keys, and
  /// entries of cmp_indices are numbers of compressed keys, counted inside the batch element. A list ends at its first
  /// -1. An entry at or above the token's limit is skipped. An entry that is listed twice counts twice. Without a list,
  /// a token attends to all keys that ori_mask or cmp_mask allows.
  TensorView ori_indices, cmp_indices;
  TensorView ori_topk_length, cmp_topk_length;  ///< optional, i32 [B, S1, 1]: how many entries of a list are read
  /// The page numbers, i32 [B, n], for keys in pages. An entry is read only if its page holds a key that some token may
  /// attend to.
  TensorView ori_block_table, cmp_block_table;
  /// The sinks, optional, f32 [N]: for each head the score of a virtual key with value 0, which every row has.
  TensorView sink;
  /// Inclusive prefix sums of the sequences' numbers of rows. TND needs them, and other layouts refuse them. For keys
  /// in pages, cu_ori and cu_cmp must be empty.
  std::span<const int64_t> cu_q, cu_ori, cu_cmp;
  /// How many rows of each batch element or sequence are in use, from its first row on. Empty means all rows. Keys in
  /// pages need these numbers.
  std::span<const int64_t> used_q, used_ori, used_cmp;
  /// Optional, one per batch element: the tokens after the last compressed key. It is read only without ori_kv.
  std::span<const int64_t> cmp_residual;
  MutableTensorView out;  ///< [B, S1, N, D], type of q
  MutableTensorView lse;  ///< optional, f32 [B, 1, S1, N] (TND [1, T, N]): log of the sum of exp(score), with the sink
};

/// The bytes of a row of quantised keys: `rope` columns of q's type, then D - rope numbers of type f8e4m3, then one
/// scale byte for every `tile` of these numbers, and then any padding. A scale byte e stands for 2^(e - 127), and 255
/// for NaN. The row stands for D columns: the numbers times their scales, and then the rope columns as they are. Where
/// kernels multiply bf16, products are rounded to bf16.
/// @code{.cpp}
/// // DeepSeek-V4's rows of 640 bytes, for D = 512: 64 bf16 columns of the rope part, 448 numbers, 7 scales, padding
/// constexpr fa::SharedKvRowFormat format = {.rope = 64, .tile = 64};
/// return format.tile;
/// @endcode
struct SharedKvRowFormat {
  int64_t rope = 0;
  int64_t tile = 0;  ///< 0: keys are not quantised
};

/// The options of SharedKvAttention and its gradient. Query token i of a batch element with S1 tokens stands at
/// position t = S2 - S1 + i + 1. S2 is the number of original keys or, without ori_kv, cmp_ratio times the number of
/// compressed keys, plus cmp_residual.
struct SharedKvOptions {
  Layout layout = Layout::kBSND;    ///< layout of queries and results, BSND or TND, and of keys outside of pages
  std::optional<float> scale = {};  ///< default 1/sqrt(D); any finite value
  int64_t cmp_ratio = 1;            ///< tokens per compressed key, 1..2^30
  /// The original keys that a token may attend to: all with kNone, [0, t) with kRightDownCausal, and [t - window_left -
  /// 1, t + window_right) with kBand. The mask is kNone if ori_indices is given.
  SparseMask ori_mask = SparseMask::kNone;
  /// The compressed keys that a token may attend to: all with kNone, and the keys below t / cmp_ratio, rounded down,
  /// with kRightDownCausal.
  SparseMask cmp_mask = SparseMask::kRightDownCausal;
  int64_t window_left = -1, window_right = -1;  ///< of kBand; -1: no limit on that side
  /// Whether entries of ori_indices are row numbers of the pages (block * block size + row) instead of key numbers.
  /// Then ori_block_table is not read.
  bool ori_indices_are_slots = false;
  /// Whether the call is refused, before anything is written, if an entry is no key ("cmp_indices[0][3][0][17]=9000,
  /// want -1..8191"). If false, such an entry is skipped.
  bool check_indices = true;
  /// The form of both tensors of keys in a forward. If it is given, their type is f8e4m3, and their last size is the
  /// number of bytes of a row. Gradients do not take quantised keys.
  SharedKvRowFormat row_format = {};
  float lse_without_keys = -std::numeric_limits<float>::infinity();  ///< lse of a row without keys, -inf or inf
};

/// Computes out = softmax(scale * q K^T) K, where K are the token's original keys and then its compressed keys.
///
/// A row without keys gives out = 0 and lse = lse_without_keys. With a sink, such a row has lse = sink, unless its
/// batch element has no key at all. Rows that are not in use get out = 0. Their lse is inf if lse_without_keys is inf,
/// and otherwise 0. Sums run over original keys in ascending order, then over compressed keys in ascending order, in
/// f32, and are rounded once. The bits do not depend on the number of threads, the other rows, the layout, pages, or
/// the order of a list. With ori_indices_are_slots, sums run over original keys in the order of the list.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows SparseFlashMla of CANN and DeepSeek-V4, but does not limit the sizes and number of heads.
FA_API Status SharedKvAttention(const SharedKvArgs& args, const SharedKvOptions& options, Context* context = nullptr);

/// Plans a call of SharedKvAttention: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SharedKvArgs>> PlanSharedKvAttention(const SharedKvArgs& args, const SharedKvOptions& options,
                                                           Context* context = nullptr);

}  // namespace fa

#endif  // FA_SHARED_KV_ATTENTION_H_
