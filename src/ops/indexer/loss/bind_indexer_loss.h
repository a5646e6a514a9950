#ifndef FA_OPS_BIND_INDEXER_LOSS_H_
#define FA_OPS_BIND_INDEXER_LOSS_H_

#include <cstdint>
#include <vector>

#include "fa/indexer_loss.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/token/key_selection.h"

namespace fa::ops {

/// The attention whose probabilities the indexer learns.
struct LossAttention {
  int64_t heads = 0, heads_kv = 1;
  int64_t d = 0, d_rope = 0;
  layout::Rows q, k, q_rope, k_rope;
  layout::Stats max, sum;  ///< `head` is the stride within a group of heads, `copy_stride` from group to group
  float scale = 1;
  bool has_sink = false;  ///< whether there are sinks, which only the sparse loss has

  /// Returns the statistic of one head for a row.
  [[nodiscard]] float Statistic(const layout::StatsView& of, int64_t batch, int64_t head, int64_t row) const {
    const int64_t group = heads / heads_kv;
    return of.data[of.where.Offset(batch, head % group, row) + head / group * of.where.copy_stride];
  }
};

/// The sizes and layouts of a loss.
struct LossProblem {
  IndexerShape shape;
  LossAttention attention;
  IndexerTarget target = IndexerTarget::kHeadMean;
  float multiplier = 1;  ///< factor of loss and gradients

  // Members of a sparse loss.
  KeyLists lists;
  bool has_mean = false;  ///< whether p_head_mean is given; then `attention` is not used
};

/// A validated call of a KL loss.
struct BoundIndexerLoss {
  LossProblem problem;
  IndexerGradRows gradients;

  // Members of a sparse loss.
  layout::Rows mean;           ///< layout of p_head_mean; the entries of a query token are the row at (b, 0, s)
  layout::Rows softmax_index;  ///< layout of softmax_index, like `mean`
  bool check_indices = true;

  // Members of a dense loss.
  layout::Stats max_index, sum_index;

  std::vector<PlannedTensor> planned;
};

/// The tensors of a loss in a run. With LossProblem::has_mean, `mean` is used instead of the attention's tensors.
struct LossRows {
  IndexerRows index;
  layout::RowsView q, k, q_rope, k_rope;
  layout::StatsView max, sum;
  layout::StatsView max_index = {}, sum_index = {};
  layout::RowsView mean = {};
  layout::MutableRowsView softmax_index = {};  ///< gets y, the indexer's probabilities; null data if y is not wanted
  const float* sink = nullptr;                 ///< one sink per head
  layout::RowsView indices = {};               ///< lists of keys; the list of a query token is the row at (b, 0, s)
  IndexerGradViews gradients;
  float* loss = nullptr;
};

/// Returns the tensors of checked arguments.
[[nodiscard]] LossRows RowsOf(const BoundIndexerLoss& bound, const SparseIndexerLossArgs& args);
[[nodiscard]] LossRows RowsOf(const BoundIndexerLoss& bound, const DenseIndexerLossArgs& args);

/// Checks the tensor that gets a loss: f32, one element.
[[nodiscard]] Status CheckLoss(const MutableTensorView& loss);

/// Find every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundIndexerLoss> BindIndexerLoss(const SparseIndexerLossArgs& args,
                                                       const SparseIndexerLossOptions& options);
[[nodiscard]] Result<BoundIndexerLoss> BindIndexerLoss(const DenseIndexerLossArgs& args,
                                                       const DenseIndexerLossOptions& options);

/// Check in Run that tensors and lengths are the planned ones, and that no output shares an element with another
/// tensor. If check_indices is set, the sparse loss also checks that indices are keys.
[[nodiscard]] Status CheckIndexerLossRunArgs(const BoundIndexerLoss& bound, const SparseIndexerLossArgs& args);
[[nodiscard]] Status CheckIndexerLossRunArgs(const BoundIndexerLoss& bound, const DenseIndexerLossArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INDEXER_LOSS_H_
