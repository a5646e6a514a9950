#ifndef FA_LIGHTNING_INDEXER_H_
#define FA_LIGHTNING_INDEXER_H_

/// @file
/// The lightning indexer, which selects the keys with the largest scores for every query token.
/// @code{.cpp}
/// std::vector<float> q(128 * 16 * 64), k(4096 * 64), weights(128 * 16);
/// std::vector<int32_t> indices(128 * 512);
/// fa::LightningIndexerArgs args;
/// args.q = fa::View(q.data(), {1, 128, 16, 64});  // [B, S, N, D]
/// args.k = fa::View(k.data(), {1, 4096, 1, 64});
/// args.weights = fa::View(weights.data(), {1, 128, 16});
/// args.sparse_indices = fa::View(indices.data(), {1, 128, 1, 512});
/// return fa::LightningIndexer(args, {});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the lightning indexer. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. A tensor with null
/// data is absent.
struct LightningIndexerArgs {
  TensorView q;  ///< [B, S1, N, D]; f32, bf16 or f16; with q_scale i8 or f8e4m3
  /// [B, S2, 1, D], type of q; with block_table, pages of any size: [blocks, block size, 1, D]
  TensorView k;
  TensorView weights;  ///< [B, S1, N], type of q or f32; any float type if q is i8 or f8e4m3
  TensorView q_scale;  ///< [B, S1, N]; f32, bf16 or f16; given exactly if q is i8 or f8e4m3
  /// With q_scale, [B, S2, 1] or [B, S2]; f32, bf16 or f16. With block_table the shape is [blocks, block size, 1] or
  /// [blocks, block size].
  TensorView k_scale;
  TensorView block_table;  ///< i32 [B, n], for keys in pages: key j lies in page block_table[b][j / block size]
  /// The numbers of rows in use. With TND they are inclusive prefix sums; a leading 0 is an empty first sequence.
  /// Otherwise, and for keys in pages, they are one length per batch element. Empty means that all rows are in use. TND
  /// and pages need these lengths.
  std::span<const int64_t> lengths_q, lengths_kv;
  /// Optional with TND, one number per sequence: how many of its rows are in use. The other rows count as rows past the
  /// length. used_kv does not go with pages, for which lengths_kv says how many rows are in use.
  std::span<const int64_t> used_q, used_kv;
  /// The number of tokens after those that the last key stands for. Optional, one number per batch element, less than
  /// cmp_ratio; default 0.
  std::span<const int64_t> residual_kv;
  /// Optional, i32 [B, S1, 1] (TND [T, 1]), or [B] with one number per batch element. It is added to each index that is
  /// not -1. Offsets are at least 0, and the sums stay below 2^31.
  TensorView index_offset;
  MutableTensorView sparse_indices;  ///< i32 [B, S1, 1, K]: the K keys with the largest scores
  /// Optional, shape of sparse_indices: the scores of these keys. The type is that of q or f32; any float type if q is
  /// i8 or f8e4m3.
  MutableTensorView sparse_values;
};

/// The options of an indexer call: everything but the tensors.
struct LightningIndexerOptions {
  Layout layout = Layout::kBSND;  ///< layout of queries and results, BSND or TND, and of keys that do not lie in pages
  SparseMask mask = SparseMask::kRightDownCausal;
  /// The number of tokens that each key stands for, 1..2^20. With kRightDownCausal the limit of query token t is then
  /// (S2 * cmp_ratio + residual_kv - S1 + t + 1) / cmp_ratio. It is rounded down and kept within 0..S2. S1 and S2 count
  /// the rows in use. So a token selects only keys whose tokens all come before it or are its own.
  int64_t cmp_ratio = 1;
};

/// Writes the K keys with the largest scores, where
///   score(t, s) = sum over heads g of weights[t][g] * max(0, q[t][g] . k[s])
/// for the keys s < limit(t), in f32. With q_scale and k_scale the score is
///   score(t, s) = k_scale[s] * sum over heads g of (weights[t][g] * q_scale[t][g]) * max(0, q[t][g] . k[s])
/// where products of i8 are exact. Keys stand in the order of descending scores; of keys with equal scores the lower
/// key comes first. -0 counts as +0, and NaN comes last. Unused entries, rows without keys and rows past their length
/// get index -1 and value -inf. No factor such as 1/sqrt(D) is applied, because models multiply it into the weights.
/// The selection is exact. The bits of the results do not depend on the number of threads, the other rows, the layout
/// or pages.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows LightningIndexer of CANN and DeepSeek-V3.2 (2025), without size limits.
FA_API Status LightningIndexer(const LightningIndexerArgs& args, const LightningIndexerOptions& options,
                               Context* context = nullptr);

/// Plans a call of LightningIndexer: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<LightningIndexerArgs>> PlanLightningIndexer(const LightningIndexerArgs& args,
                                                                  const LightningIndexerOptions& options,
                                                                  Context* context = nullptr);

}  // namespace fa

#endif  // FA_LIGHTNING_INDEXER_H_
