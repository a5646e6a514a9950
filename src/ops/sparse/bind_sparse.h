#ifndef FA_OPS_BIND_SPARSE_H_
#define FA_OPS_BIND_SPARSE_H_

#include <cstdint>
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
#include "ops/token/sparse_sequences.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::ops {

/// A validated sparse call: the equivalent dense call with one key head, and how its keys are found.
struct BoundSparse {
  BoundAttention attention;  ///< q, q_rope, out and statistics; its sequences are the same as below
  SparseSequences sequences;
  KeyLists lists;
  layout::Rows k, k_rope, v;  ///< pages: `batch` is the stride from page to page
  bool has_v = false, has_mean = false, check_indices = true;
  bool paged = false;
  layout::BlockTable table;  ///< layout of the pages, without the table's entries
  layout::Rows mean;         ///< p_head_mean: a token's entries are the row at (b, 0, s)
  std::vector<PlannedTensor> planned;

  /// The call as the planner sees it; refers to this object.
  [[nodiscard]] tiling::SparseProblem Problem() const;
};

/// A validated sparse backward.
struct BoundSparseGrad {
  BoundSparse forward;  ///< its planned tensors are those of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;
  bool has_dsink = false;
};

/// Both find every user error that does not depend on addresses or contents.
[[nodiscard]] Result<BoundSparse> BindSparse(const SparseAttentionArgs& args, const SparseAttentionOptions& options);
[[nodiscard]] Result<BoundSparseGrad> BindSparseGrad(const SparseAttentionGradArgs& args,
                                                     const SparseAttentionOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, that outputs lie apart, that pages exist and, if the
/// caller wants it, that indices exist.
[[nodiscard]] Status CheckSparseRunArgs(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] Status CheckSparseGradRunArgs(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

/// The rows of a sparse forward in a run.
struct SparseRows {
  ForwardRows attention;
  KeyLists lists;
  layout::RowsView indices;      ///< the list of token (b, 0, s)
  layout::MutableRowsView mean;  ///< p_head_mean, f32; null data: not wanted
};

/// The rows of a sparse backward in a run.
struct SparseGradRows {
  GradRows attention;
  KeyLists lists;
  layout::RowsView indices;
};

/// The tensors of checked arguments. They point into `bound`.
[[nodiscard]] SparseRows RowsOf(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] SparseGradRows RowsOf(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_SPARSE_H_
