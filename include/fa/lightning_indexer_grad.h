#ifndef FA_LIGHTNING_INDEXER_GRAD_H_
#define FA_LIGHTNING_INDEXER_GRAD_H_

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the indexer's backward: those of the forward call (LightningIndexerArgs has their shapes; keys do not lie
/// in pages), its indices, and the gradient of its values. Null data = absent.
struct LightningIndexerGradArgs {
  TensorView q, k, weights;
  TensorView sparse_indices;  ///< i32 or i64 [B, S1, 1, K]; a row ends at its first -1 and at its limit-th entry
  TensorView d_values;        ///< [B, S1, 1, K] or [B, S1, K], type of q or f32
  std::span<const int64_t> lengths_q, lengths_kv;

  MutableTensorView dq;        ///< shape and type of q
  MutableTensorView dk;        ///< shape and type of k
  MutableTensorView dweights;  ///< shape and type of weights
};

/// Everything of an indexer's backward that is not a tensor.
struct LightningIndexerGradOptions {
  Layout layout = Layout::kBSND;  ///< those of the forward call
  SparseMask mask = SparseMask::kRightDownCausal;
  bool check_indices = true;  ///< as SparseAttentionOptions
};

/// Gradients of the values of LightningIndexer: with S the products q.k of a row's entries and E = w d_values where
/// S > 0, else 0:  dweights = sum of d_values max(0, S), dq = E K_sel, dk = E^T q, summed over tokens in ascending
/// order. A key that no token selects and a row without keys get 0. An entry that stands twice counts twice. Everything
/// is accumulated in f32 and rounded once; the bits do not depend on the number of threads.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows LightningIndexerGrad of CANN.
FA_API Status LightningIndexerGrad(const LightningIndexerGradArgs& args, const LightningIndexerGradOptions& options,
                                   Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<LightningIndexerGradArgs>> PlanLightningIndexerGrad(const LightningIndexerGradArgs& args,
                                                                          const LightningIndexerGradOptions& options,
                                                                          Context* context = nullptr);

}  // namespace fa

#endif  // FA_LIGHTNING_INDEXER_GRAD_H_
