#ifndef FA_INDEXER_LSE_H_
#define FA_INDEXER_LSE_H_

/// @file
/// The softmax maximum and sum of an indexer's scores, which are inputs of the dense KL loss.
/// @code{.cpp}
/// std::vector<float> q(128 * 16 * 64), k(128 * 64), weights(128 * 16), max(128), sum(128);
/// fa::DenseIndexerLseArgs args;
/// args.q_index = fa::View(q.data(), {1, 128, 16, 64});  // [B, S, N, D]
/// args.k_index = fa::View(k.data(), {1, 128, 1, 64});
/// args.weights = fa::View(weights.data(), {1, 128, 16});
/// args.softmax_max_index = fa::View(max.data(), {1, 1, 128});
/// args.softmax_sum_index = fa::View(sum.data(), {1, 1, 128});
/// return fa::DenseLightningIndexerSoftmaxLse(args, {});
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

/// Tensors of the softmax statistics of an indexer's scores. Shapes are written for BSND; TND has [T, ...] for
/// [B, S, ...].
struct DenseIndexerLseArgs {
  TensorView q_index;  ///< [B, S1, N, D]; f32, bf16 or f16
  TensorView k_index;  ///< [B, S2, 1, D], type of q_index
  TensorView weights;  ///< [B, S1, N], type of q_index or f32
  /// The numbers of rows in use. With TND they are inclusive prefix sums, otherwise one length per batch element. Empty
  /// means that all rows are in use. TND needs both lists.
  std::span<const int64_t> lengths_q, lengths_kv;
  MutableTensorView softmax_max_index;  ///< f32 [B, 1, S1] (TND [1, T])
  MutableTensorView softmax_sum_index;  ///< f32 in the shape of softmax_max_index
};

/// The options of a call for the statistics: everything but the tensors.
struct DenseIndexerLseOptions {
  Layout layout = Layout::kBSND;  ///< BSND or TND
  SparseMask mask = SparseMask::kRightDownCausal;
};

/// Computes the statistics. Let I(t, s) be the score that LightningIndexer gives key s for token t, where s < limit(t)
/// (see SparseMask). Then
///   softmax_max_index = max of I(t, s);  softmax_sum_index = sum of exp(I(t, s) - softmax_max_index)
/// which are the statistics that DenseLightningIndexerGradKLLoss takes. -0 counts as +0. Both values are 0 for a row
/// without keys and for a row past its length. Rows with these values add nothing to the loss, and their gradients are
/// 0. A NaN among the scores makes both values NaN. If the maximum is infinite, the sum is NaN. Exponentials are
/// computed in f32, added in double in the order of the keys, and rounded once. The bits do not depend on the number of
/// threads, the other rows or the layout.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows DenseLightningIndexerSoftmaxLse of CANN, without its size limits.
FA_API Status DenseLightningIndexerSoftmaxLse(const DenseIndexerLseArgs& args, const DenseIndexerLseOptions& options,
                                              Context* context = nullptr);

/// Plans a call of DenseLightningIndexerSoftmaxLse: validates it, cuts it into tiles and lays out its workspace. The
/// function reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<DenseIndexerLseArgs>> PlanDenseLightningIndexerSoftmaxLse(const DenseIndexerLseArgs& args,
                                                                                const DenseIndexerLseOptions& options,
                                                                                Context* context = nullptr);

}  // namespace fa

#endif  // FA_INDEXER_LSE_H_
