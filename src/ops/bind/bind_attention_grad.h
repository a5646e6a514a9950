#ifndef FA_OPS_BIND_ATTENTION_GRAD_H_
#define FA_OPS_BIND_ATTENTION_GRAD_H_

#include <cstdint>

#include "fa/flash_attention_grad.h"
#include "layout/rows.h"
#include "layout/rows_view.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// A validated call of the dense backward: its sizes, masks and strides, without addresses.
struct BoundAttentionGrad {
  /// The differentiated forward. The forward's `out` and statistics are inputs of the backward, and may have any
  /// strides, 0 included. Both statistics are present, and lse is absent.
  BoundAttention forward;
  layout::Rows d_out, dq, dk, dv;
  layout::Rows dq_rope, dk_rope;  ///< set if forward.has_rope
  bool has_dpse = false, has_dslopes = false, has_dsink = false;
  /// Layout of dpse, never compressed; dpse is a sum over the dimensions that pse shares.
  PseRows dpse;
  bool dpse_of_one_row = false;  ///< whether dpse.shared_rows is set but the call has one row, so that no sum is needed
  /// The stride of dslopes from one batch element to the next; 0 for a dslopes [N], which is a sum over the batch
  /// (dslopes_shared).
  int64_t dslopes_batch_stride = 0;
  bool dslopes_shared = false;
  layout::Stats dsink;
  /// The number of rows of dsink if batch elements share one sink per row, so that dsink is a sum over the batch.
  /// Otherwise the number is 0.
  int64_t dsink_shared_rows = 0;
  tiling::Interval unused_keys = {};  ///< TND rows of keys past the last prefix sum, whose gradients are written as 0
};

/// The tensors of a dense backward in a run, like ForwardRows.
struct GradRows {
  layout::RowsView q = {}, q_rope = {}, k = {}, k_rope = {}, v = {}, out = {}, d_out = {};
  layout::StatsView softmax_max = {}, softmax_sum = {};
  layout::StatsView sink = {};
  ScoreInputs scores = {};

  layout::MutableRowsView dq = {}, dq_rope = {}, dk = {}, dk_rope = {}, dv = {};
  MutablePseView dpse = {};
  bool dpse_of_one_row = false;
  /// Gradients of slopes, addressed as (b, n, 0); a single row [N] if the batch shares the slopes.
  layout::MutableStatsView dslopes = {};
  bool dslopes_shared = false;
  /// Gradients of sinks. A stride is 0 along an index over which the gradient is a sum.
  layout::MutableStatsView dsink = {};
  bool dsink_per_row = false;                              ///< whether each row has a sink of its own
  int64_t dsink_shared_rows = 0;                           ///< as BoundAttentionGrad::dsink_shared_rows
  tiling::Interval unused_queries = {}, unused_keys = {};  ///< rows that belong to no packed sequence
};

/// Finds every user error of the dense backward that does not depend on addresses or contents.
[[nodiscard]] Result<BoundAttentionGrad> BindAttentionGrad(const AttentionGradArgs& args,
                                                           const AttentionOptions& options);

/// Does what CheckRunArgs does, for the tensors of the backward.
[[nodiscard]] Status CheckGradRunArgs(const BoundAttentionGrad& bound, const AttentionGradArgs& args);

/// Returns the tensors of checked arguments, whose layouts point into `bound`.
[[nodiscard]] GradRows RowsOf(const BoundAttentionGrad& bound, const AttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_ATTENTION_GRAD_H_
