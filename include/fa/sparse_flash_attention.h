#ifndef FA_SPARSE_FLASH_ATTENTION_H_
#define FA_SPARSE_FLASH_ATTENTION_H_

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

/// Tensors of sparse top-k attention: every query token attends to the keys of its own list, which all its heads share,
/// with one key head. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. Null data = absent.
struct SparseAttentionArgs {
  TensorView q;  ///< [B, S1, N, D]; f32, bf16 or f16
  /// [B, S2, 1, D], type of q; with block_table pages [blocks, block size, 1, D] of any size
  TensorView k;
  TensorView v;       ///< optional, as k with Dv columns; absent: the first Dv columns of k
  TensorView q_rope;  ///< optional, [B, S1, N, Drope]: scores are Q K^T + Qr Kr^T
  TensorView k_rope;  ///< with q_rope, as k with Drope columns
  TensorView sink;    ///< optional, f32 [N]: a virtual key of that score and value 0, which every list names once
  /// i32 or i64 [B, S1, 1, K]: blocks of SparseAttentionOptions::block_size keys, local to the batch element, up to the
  /// first -1; entry b stands for keys [b * block_size, min((b + 1) * block_size, limit)). At most
  /// ceil(limit / block_size) entries of a row are read; an entry beyond the limit is skipped; an entry that stands
  /// twice counts twice. The order changes no bit.
  TensorView sparse_indices;
  TensorView block_table;  ///< i32 [B, n], of keys in pages: key j lies in page block_table[b][j / block size]
  /// Rows in use: of TND tensors the inclusive prefix sums (a leading 0 is an empty first sequence), else the length of
  /// each batch element, of keys in pages too. Empty: all (TND and pages need them).
  std::span<const int64_t> lengths_q, lengths_kv;
  MutableTensorView out;          ///< [B, S1, N, Dv], type of q
  MutableTensorView softmax_max;  ///< optional, f32 [B, 1, S1, N] (TND [1, T, N]): largest scaled score, natural log
  MutableTensorView softmax_sum;  ///< optional, f32 of the same shape: sum of exp(score - max)
  /// optional, f32 [B, S1, K] (TND [T, K]), block_size 1: the mean over the heads of each entry's probability, 0 where
  /// no key is. What SparseLightningIndexerGradKLLoss computes again without it.
  MutableTensorView p_head_mean;
};

/// Everything of a sparse call that is not a tensor.
struct SparseAttentionOptions {
  Layout layout = Layout::kBSND;    ///< BSND or TND, of queries, results, and of keys that do not lie in pages
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  int64_t block_size = 1;           ///< keys an entry of sparse_indices stands for, 1..128
  SparseMask mask = SparseMask::kRightDownCausal;
  /// Refuse an entry that is no block of the sequence ("sparse_indices[0][3][0][17]=9000, want -1..8191"), before
  /// anything is written; else it is skipped.
  bool check_indices = true;
};

/// out = softmax(scale * Q K_sel^T) V_sel. A row without keys gives out = 0, max = 0, sum = 0 (with a sink: max = sink,
/// sum = 1, but where the sequence has no keys at all), and a row past its length gives 0, 0, 0. The statistics and
/// p_head_mean count the sink in: what it takes is missing from the sum of the other probabilities. Sums run over the
/// keys in ascending order, in f32, rounded once; the bits do not depend on the number of threads, the other rows, the
/// layout, pages, or the order of the list.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows SparseFlashAttention of CANN and DeepSeek-V3.2 (2025), without limits of head sizes and counts.
FA_API Status SparseFlashAttention(const SparseAttentionArgs& args, const SparseAttentionOptions& options,
                                   Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseAttentionArgs>> PlanSparseFlashAttention(const SparseAttentionArgs& args,
                                                                     const SparseAttentionOptions& options,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_SPARSE_FLASH_ATTENTION_H_
