#ifndef FA_INDEXER_KL_LOSS_H_
#define FA_INDEXER_KL_LOSS_H_

/// @file
/// The value of an indexer's KL loss, from two given distributions.
/// @code{.cpp}
/// std::vector<float> target(128 * 512, 0.5F), probabilities(target), loss(1);
/// return fa::IndexerKLLoss({.target = fa::View(target.data(), {128, 512}),
///                           .probabilities = fa::View(probabilities.data(), {128, 512}),
///                           .loss = fa::View(loss.data(), {1})},
///                          {});
/// @endcode

#include <cstdint>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// The factor of each logarithm in IndexerKLLoss.
enum class IndexerKLLossWeight : uint8_t {
  kTarget,      ///< y, as the target is given
  kNormalised,  ///< P, the target divided by its sum over the row
};

/// Tensors of the loss. They may have any strides.
struct IndexerKLLossArgs {
  TensorView target;         ///< y: [..., K]; f32, bf16 or f16
  TensorView probabilities;  ///< Y, the indexer's softmax: shape of target; f32, bf16 or f16
  MutableTensorView loss;    ///< f32, one element
};

/// The options of the loss.
struct IndexerKLLossOptions {
  double eps = 1e-8;  ///< keeps divisors and logarithms away from 0; at least 0. If it is 0, entries of 0 may give NaN
  IndexerKLLossWeight weight = IndexerKLLossWeight::kTarget;
};

/// Computes the loss. For each row of K entries and for all rows together,
///   P = y / (sum of y + eps);  loss = sum of w (ln max(P, eps) - ln(Y + eps))
/// where w is y or P. The terms of a row are computed and added in double, in their order. Then the sums of the rows
/// are added in double, in the order of the rows. The loss is rounded once. A NaN in an input gives NaN. Bits do not
/// depend on the number of threads or on strides.
/// @return kInvalidArgument with the argument's name, or kOutOfMemory. After an error nothing was written. The loss
/// must not overlap an input. The function is re-entrant. It follows LightningIndexerKLLoss of CANN.
FA_API Status IndexerKLLoss(const IndexerKLLossArgs& args, const IndexerKLLossOptions& options,
                            Context* context = nullptr);

/// Plans a call of IndexerKLLoss. The function reads shapes, strides and types.
FA_API Result<PlanFor<IndexerKLLossArgs>> PlanIndexerKLLoss(const IndexerKLLossArgs& args,
                                                            const IndexerKLLossOptions& options,
                                                            Context* context = nullptr);

}  // namespace fa

#endif  // FA_INDEXER_KL_LOSS_H_
