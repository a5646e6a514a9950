#ifndef FA_SPARSE_FLASH_ATTENTION_H_
#define FA_SPARSE_FLASH_ATTENTION_H_

/// @file
/// Sparse top-k attention, forward, in which every query token attends to its own list of keys.
/// @code{.cpp}
/// std::vector<float> q(128 * 16 * 64), k(4096 * 64), v(k), out(q);
/// std::vector<int32_t> indices(128 * 512);  // a result of LightningIndexer
/// fa::SparseAttentionArgs args;
/// args.q = fa::View(q.data(), {1, 128, 16, 64});  // [B, S, N, D]
/// args.k = fa::View(k.data(), {1, 4096, 1, 64});
/// args.v = fa::View(v.data(), {1, 4096, 1, 64});
/// args.sparse_indices = fa::View(indices.data(), {1, 128, 1, 512});
/// args.out = fa::View(out.data(), {1, 128, 16, 64});
/// return fa::SparseFlashAttention(args, {});
/// @endcode

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of sparse top-k attention. Every query token attends to its own list of keys, which all its heads share.
/// There is one KV head. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. A tensor with null data is
/// absent.
struct SparseAttentionArgs {
  TensorView q;  ///< [B, S1, N, D]; f32, bf16 or f16
  /// [B, S2, 1, D], type of q; with block_table, pages of any size: [blocks, block size, 1, D]. With
  /// SparseAttentionOptions::row_format the type is i8 or f8e4m3, and the last size is KeyRowFormat::Bytes.
  TensorView k;
  TensorView v;  ///< optional, as k but with Dv columns, or in the same row format; absent: the first Dv columns of k
  TensorView q_rope;  ///< optional, [B, S1, N, Drope]: scores are Q K^T + Qr Kr^T
  TensorView k_rope;  ///< with q_rope, as k but with Drope columns
  /// The sinks, optional, f32 [N]: for each head the score of a virtual key with value 0. It counts as one more key of
  /// every list.
  TensorView sink;
  /// The lists of keys, i32 or i64 [B, S1, 1, K]. An entry is the number of a block of
  /// SparseAttentionOptions::block_size keys, counted inside the batch element. A list ends at its first -1. Entry x
  /// stands for keys [x * block_size, min((x + 1) * block_size, limit)), where SparseMask defines limit. At most
  /// ceil(limit / block_size) entries of a list are read. An entry beyond the limit is skipped. An entry that is listed
  /// twice counts twice. The order of the entries changes no bit.
  TensorView sparse_indices;
  TensorView block_table;  ///< i32 [B, n], for keys in pages: key j lies in page block_table[b][j / block size]
  /// The numbers of rows in use. With TND they are inclusive prefix sums; a leading 0 is an empty first sequence.
  /// Otherwise, and for keys in pages, they are one length per batch element. Empty means that all rows are in use. TND
  /// and pages need these lengths.
  std::span<const int64_t> lengths_q, lengths_kv;
  MutableTensorView out;          ///< [B, S1, N, Dv], type of q
  MutableTensorView softmax_max;  ///< optional, f32 [B, 1, S1, N] (TND [1, T, N]): largest scaled score, natural log
  MutableTensorView softmax_sum;  ///< optional, f32 in the shape of softmax_max: sum of exp(score - max)
  /// Optional, f32 [B, S1, K] (TND [T, K]), with block_size 1: for each entry, the mean over the heads of its key's
  /// probability, or 0 if the entry has no key. SparseLightningIndexerGradKLLoss computes this mean again if the caller
  /// does not pass it.
  MutableTensorView p_head_mean;
};

/// The bytes of a row of quantised keys: `columns` numbers of one byte each, then `rope` columns of q's type, then f32
/// scales, one per `tile` columns. The row stands for `columns` + `rope` columns. Column c < columns is its number
/// times scale c / tile, in f32. The rope columns follow as they are. Where kernels multiply bf16, products are rounded
/// to bf16. Parts of a row may lie at any address.
/// @code{.cpp}
/// // DeepSeek-V3.2's rows: 512 numbers, 64 bf16 columns of the rope part, four scales
/// constexpr fa::KeyRowFormat format = {.columns = 512, .rope = 64, .tile = 128};
/// static_assert(format.Bytes(fa::DType::kBF16) == 656);
/// @endcode
struct KeyRowFormat {
  int64_t columns = 0;  ///< 0: keys are not quantised; otherwise columns + rope = D
  int64_t rope = 0;
  int64_t tile = 0;  ///< at least 1; the last tile of a row may be shorter

  /// Returns the bytes of a row, for queries of this type.
  [[nodiscard]] constexpr int64_t Bytes(DType q) const {
    const int64_t scales = tile > 0 && columns > 0 ? 1 + (columns - 1) / tile : 0;
    return columns + rope * static_cast<int64_t>(SizeOf(q)) + scales * static_cast<int64_t>(sizeof(float));
  }
  friend constexpr bool operator==(const KeyRowFormat&, const KeyRowFormat&) = default;
};

/// The options of a sparse call: everything but its tensors.
struct SparseAttentionOptions {
  /// Layout of queries and results, BSND or TND, and of keys that do not lie in pages.
  Layout layout = Layout::kBSND;
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  int64_t block_size = 1;           ///< number of keys per entry of sparse_indices, 1..128
  SparseMask mask = SparseMask::kRightDownCausal;
  /// Whether the call is refused, before anything is written, if an entry is no block of the sequence
  /// ("sparse_indices[0][3][0][17]=9000, want -1..8191"). If false, such an entry is skipped.
  bool check_indices = true;
  /// The form of k, and of v if it is given, in a forward. Then there is no q_rope, and out has at most
  /// row_format.columns columns. Gradients do not take quantised keys.
  KeyRowFormat row_format = {};
};

/// Computes out = softmax(scale * Q K_sel^T) V_sel.
///
/// A row without keys gives out = 0, max = 0 and sum = 0. If there is a sink and the sequence has keys, such a row
/// gives max = sink and sum = 1. A row past its length gives 0 in all three. With a sink, the statistics and
/// p_head_mean include it, so the probabilities of the keys add up to less than 1. Sums run over the keys in ascending
/// order, in f32, and are rounded once. The bits do not depend on the number of threads, the other rows, the layout,
/// pages, or the order of the list.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows SparseFlashAttention of CANN and DeepSeek-V3.2 (2025), but does not limit the sizes and
/// number of heads.
FA_API Status SparseFlashAttention(const SparseAttentionArgs& args, const SparseAttentionOptions& options,
                                   Context* context = nullptr);

/// Plans a call of SparseFlashAttention: validates it, cuts it into tiles and lays out its workspace. The function
/// reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseAttentionArgs>> PlanSparseFlashAttention(const SparseAttentionArgs& args,
                                                                     const SparseAttentionOptions& options,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_SPARSE_FLASH_ATTENTION_H_
