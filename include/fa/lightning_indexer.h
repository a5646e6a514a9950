#ifndef FA_LIGHTNING_INDEXER_H_
#define FA_LIGHTNING_INDEXER_H_

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the lightning indexer. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. Null data = absent.
struct LightningIndexerArgs {
  TensorView q;  ///< [B, S1, N, D]; f32, bf16 or f16
  /// [B, S2, 1, D], type of q; with block_table pages [blocks, block size, 1, D] of any size
  TensorView k;
  TensorView weights;      ///< [B, S1, N], type of q or f32
  TensorView block_table;  ///< i32 [B, n], of keys in pages: key j lies in page block_table[b][j / block size]
  /// Rows in use: of TND tensors the inclusive prefix sums (a leading 0 is an empty first sequence), else the length of
  /// each batch element, of keys in pages too. Empty: all (TND and pages need them).
  std::span<const int64_t> lengths_q, lengths_kv;
  MutableTensorView sparse_indices;  ///< i32 [B, S1, 1, K]: the K keys of the largest scores
  MutableTensorView sparse_values;   ///< optional, type of q or f32, shape of sparse_indices: their scores
};

/// Everything of an indexer call that is not a tensor.
struct LightningIndexerOptions {
  Layout layout = Layout::kBSND;  ///< BSND or TND, of queries, results, and of keys that do not lie in pages
  SparseMask mask = SparseMask::kRightDownCausal;
};

/// score(t, s) = sum over heads g of weights[t][g] * max(0, q[t][g] . k[s]) for the keys s < limit(t), in f32; the K
/// largest, in descending order, equal ones by ascending key; -0 counts as +0, NaN comes last. Unused entries, rows
/// without keys and rows past their length get index -1, value -inf. There is no scale: models fold it into weights.
/// The selection is exact; its bits do not depend on the number of threads, the other rows, the layout or pages.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows LightningIndexer of CANN and DeepSeek-V3.2 (2025), without limits of sizes.
FA_API Status LightningIndexer(const LightningIndexerArgs& args, const LightningIndexerOptions& options,
                               Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<LightningIndexerArgs>> PlanLightningIndexer(const LightningIndexerArgs& args,
                                                                  const LightningIndexerOptions& options,
                                                                  Context* context = nullptr);

}  // namespace fa

#endif  // FA_LIGHTNING_INDEXER_H_
