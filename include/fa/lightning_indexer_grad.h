#ifndef FA_LIGHTNING_INDEXER_GRAD_H_
#define FA_LIGHTNING_INDEXER_GRAD_H_

/// @file
/// The backward of the lightning indexer. It turns gradients of the selected scores into gradients of q, k and weights.
/// @code{.cpp}
/// // indices is a result of LightningIndexer.
/// std::vector<float> q(128 * 16 * 64), k(4096 * 64), w(128 * 16), d_values(128 * 512), dq(q), dk(k), dw(w);
/// std::vector<int32_t> indices(128 * 512);
/// fa::LightningIndexerGradArgs args;
/// args.q = fa::View(q.data(), {1, 128, 16, 64}), args.dq = fa::View(dq.data(), {1, 128, 16, 64});
/// args.k = fa::View(k.data(), {1, 4096, 1, 64}), args.dk = fa::View(dk.data(), {1, 4096, 1, 64});
/// args.weights = fa::View(w.data(), {1, 128, 16}), args.dweights = fa::View(dw.data(), {1, 128, 16});
/// args.sparse_indices = fa::View(indices.data(), {1, 128, 1, 512});
/// args.d_values = fa::View(d_values.data(), {1, 128, 1, 512});
/// return fa::LightningIndexerGrad(args, {});
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

/// Tensors of the indexer's backward: the inputs of the forward call, its indices, and the gradient of its values.
/// LightningIndexerArgs has the shapes of the inputs; keys do not lie in pages. A tensor with null data is absent.
struct LightningIndexerGradArgs {
  TensorView q, k, weights;
  TensorView sparse_indices;  ///< i32 or i64 [B, S1, 1, K]; a row ends at its first -1, or else after limit(t) entries
  TensorView d_values;        ///< [B, S1, 1, K] or [B, S1, K], type of q or f32
  std::span<const int64_t> lengths_q, lengths_kv;

  MutableTensorView dq;        ///< shape and type of q
  MutableTensorView dk;        ///< shape and type of k
  MutableTensorView dweights;  ///< shape and type of weights
};

/// The options of an indexer's backward: everything but the tensors.
struct LightningIndexerGradOptions {
  Layout layout = Layout::kBSND;  ///< layout of the forward call
  SparseMask mask = SparseMask::kRightDownCausal;
  bool check_indices = true;  ///< whether wrong indices are refused, as in SparseAttentionOptions
};

/// Computes the gradients of q, k and weights from d_values, the gradient of the scores that LightningIndexer selected.
/// Let S be the products q.k of each head with a row's selected keys K_sel, w the weights, and E = w d_values where S >
/// 0, else 0. Then
///   dweights = sum of d_values max(0, S), dq = E K_sel, dk = E^T q, summed over tokens in ascending order.
/// The gradients of a key that no token selects, and of a row without keys, are 0. An entry that is listed twice counts
/// twice. Everything is accumulated in f32 and rounded once. The bits do not depend on the number of threads.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows LightningIndexerGrad of CANN.
FA_API Status LightningIndexerGrad(const LightningIndexerGradArgs& args, const LightningIndexerGradOptions& options,
                                   Context* context = nullptr);

/// Plans a call of LightningIndexerGrad: validates it, cuts it into tiles and lays out its workspace. The function
/// reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<LightningIndexerGradArgs>> PlanLightningIndexerGrad(const LightningIndexerGradArgs& args,
                                                                          const LightningIndexerGradOptions& options,
                                                                          Context* context = nullptr);

}  // namespace fa

#endif  // FA_LIGHTNING_INDEXER_GRAD_H_
