#ifndef FA_OPS_BIND_SPARSE_H_
#define FA_OPS_BIND_SPARSE_H_

#include <cstdint>
#include <vector>

#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "layout/rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/call_tensors.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_selection.h"
#include "ops/token/sparse_sequences.h"
#include "tiling/sparse_problem.h"

namespace fa::ops {

/// A validated sparse call, as the equivalent dense call of one key head, and how its keys are found.
struct BoundSparse {
  BoundAttention attention;  ///< q, q_rope, out and statistics; its sequences are those below
  SparseSequences sequences;
  KeyLists lists;
  layout::Rows k, k_rope, v;  ///< pages: `batch` is the stride of a page
  bool has_v = false, has_mean = false, check_indices = true;
  bool paged = false;
  int64_t table_row = 0, page_rows = 0, pages = 0;
  layout::Stats mean;  ///< p_head_mean: `head` is unused, entries are next to each other
  std::vector<PlannedTensor> planned;

  /// As the planner sees it; refers to this.
  [[nodiscard]] tiling::SparseProblem Problem() const;
};

/// A validated sparse backward.
struct BoundSparseGrad {
  BoundSparse forward;  ///< its planned tensors are those of the call
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;
  bool has_dsink = false;
};

/// Find every user error that does not depend on addresses or contents.
[[nodiscard]] Result<BoundSparse> BindSparse(const SparseAttentionArgs& args, const SparseAttentionOptions& options);
[[nodiscard]] Result<BoundSparseGrad> BindSparseGrad(const SparseAttentionGradArgs& args,
                                                     const SparseAttentionOptions& options);

/// Checks in Run: tensors and lengths are the planned ones, outputs lie apart, pages and, where asked for, indices
/// exist.
[[nodiscard]] Status CheckSparseRunArgs(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] Status CheckSparseGradRunArgs(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

/// The call as the dense pipeline sees it.
[[nodiscard]] AttentionArgs DenseArgs(const SparseAttentionArgs& args);
[[nodiscard]] AttentionArgs DenseArgs(const SparseAttentionGradArgs& args);

/// Where the rows of keys lie.
[[nodiscard]] KeySources SourcesOf(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] KeySources SourcesOf(const BoundSparse& bound, const SparseAttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_SPARSE_H_
