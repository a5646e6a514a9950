#ifndef FA_OPS_BIND_SPARSE_H_
#define FA_OPS_BIND_SPARSE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "layout/rows.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/bind/planned_tensors.h"
#include "ops/token/key_selection.h"
#include "ops/token/quantized_rows.h"
#include "ops/token/sparse_sequences.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::ops {

/// A validated sparse call: the equivalent dense call with one key head, and the layouts by which its keys are found.
struct BoundSparse {
  /// The equivalent dense call, for q, q_rope, out and statistics; has the same sequences as `sequences`.
  BoundAttention attention;
  SparseSequences sequences;
  KeyLists lists;
  layout::Rows k, k_rope, v;  ///< with pages, `batch` is the stride from page to page
  bool has_v = false, has_mean = false, check_indices = true;
  bool paged = false;
  layout::BlockTable table;               ///< layout of the pages, without the table's entries
  std::optional<QuantizedRow> quantized;  ///< how rows of k and v are stored if they are quantised
  layout::Rows mean;  ///< layout of p_head_mean; the entries of a query token are the row at (b, 0, s)
  std::vector<PlannedTensor> planned;

  /// Returns the call as the planner sees it. The result refers to this object.
  [[nodiscard]] tiling::SparseProblem Problem() const;
};

/// A validated sparse backward.
struct BoundSparseGrad {
  BoundSparse forward;  ///< the forward; its `planned` holds the tensors of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;
  bool has_dsink = false;
};

/// Find every user error that does not depend on addresses or contents.
[[nodiscard]] Result<BoundSparse> BindSparse(const SparseAttentionArgs& args, const SparseAttentionOptions& options);
[[nodiscard]] Result<BoundSparseGrad> BindSparseGrad(const SparseAttentionGradArgs& args,
                                                     const SparseAttentionOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, that no output shares an element with another tensor,
/// and that pages exist. If check_indices is set, also checks that indices are blocks of keys.
[[nodiscard]] Status CheckSparseRunArgs(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] Status CheckSparseGradRunArgs(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

/// The tensors of a sparse forward in a run, with their layouts and addresses.
struct SparseRows {
  ForwardRows attention;
  KeyLists lists;
  layout::RowsView indices;      ///< lists of keys; the list of a query token is the row at (b, 0, s)
  layout::MutableRowsView mean;  ///< p_head_mean, f32; null data if it is not wanted
};

/// The tensors of a sparse backward in a run, with their layouts and addresses.
struct SparseGradRows {
  GradRows attention;
  KeyLists lists;
  layout::RowsView indices;
};

/// Returns the tensors of checked arguments. They point into `bound`.
[[nodiscard]] SparseRows RowsOf(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] SparseGradRows RowsOf(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_SPARSE_H_
