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
#include "ops/token/gathered_keys.h"
#include "ops/token/key_selection.h"
#include "ops/token/quantized_rows.h"
#include "ops/token/sparse_sequences.h"
#include "ops/token/token_keys.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::ops {

/// The layout of a second tensor of keys, and of its lists.
struct SecondKeys {
  KeyLists lists;
  layout::Rows k;
  bool paged = false;
  layout::BlockTable table;
};

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
  std::optional<tiling::SharedKeys> shared;  ///< set if keys lie in two tensors
  SecondKeys second;                         ///< with `shared`: the second tensor
  std::vector<PlannedTensor> planned;

  /// Returns the layouts of the lists.
  [[nodiscard]] TokenLists Lists() const { return {{.lists = lists}, {.lists = second.lists}}; }
  /// Returns the call as the planner sees it. The result refers to this object.
  [[nodiscard]] tiling::SparseProblem Problem() const;
};

/// Means of the probabilities over the heads that a backward writes: per entry of a token's list or, without a list,
/// per key.
struct BoundMean {
  layout::Rows rows;
  int64_t entries = 0;  ///< length of a token's row
  bool given = false;
};

/// A validated sparse backward.
struct BoundSparseGrad {
  BoundSparse forward;  ///< the forward; its `planned` holds the tensors of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;
  layout::Rows second_dk;  ///< gradient of the second tensor of keys
  layout::Stats lse;       ///< only if keys lie in two tensors
  BoundMean first_mean, second_mean;
  bool has_dsink = false;
  bool has_gradients = true;  ///< false: the call computes means over the heads only

  [[nodiscard]] bool has_means() const { return first_mean.given || second_mean.given; }
};

/// Find every user error that does not depend on addresses or contents.
[[nodiscard]] Result<BoundSparse> BindSparse(const SparseAttentionArgs& args, const SparseAttentionOptions& options);
[[nodiscard]] Result<BoundSparseGrad> BindSparseGrad(const SparseAttentionGradArgs& args,
                                                     const SparseAttentionOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, that no output shares an element with another tensor,
/// and that pages exist. If check_indices is set, also checks that indices are blocks of keys.
[[nodiscard]] Status CheckSparseRunArgs(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] Status CheckSparseGradRunArgs(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

/// Returns where the keys of a token of the sequence lie.
[[nodiscard]] inline KeyPlace PlaceOf(const SparseToken& token, const SparseSequence& sequence) {
  return {token.sequence, sequence.k_offset, sequence.first(), sequence.second_offset};
}

/// The tensors of a sparse forward in a run, with their layouts and addresses.
struct SparseRows {
  ForwardRows attention;
  TokenLists lists;
  layout::StoredRows second = {};     ///< the second tensor of keys
  layout::MutableRowsView mean = {};  ///< p_head_mean, f32; null data if it is not wanted
};

/// The tensors of a sparse backward in a run, with their layouts and addresses.
struct SparseGradRows {
  GradRows attention;
  TokenLists lists;
  layout::RowsView second = {};  ///< the second tensor of keys
  layout::StatsView lse = {};    ///< if given, read instead of the statistics
  layout::MutableRowsView second_dk = {};
  /// Means of the probabilities over the heads, f32 (BoundMean); null data if not wanted.
  layout::MutableRowsView first_mean = {}, second_mean = {};
  int64_t first_entries = 0, second_entries = 0;  ///< lengths of their rows
};

/// Returns the tensors of checked arguments. The tensors point into `bound`.
[[nodiscard]] SparseRows RowsOf(const BoundSparse& bound, const SparseAttentionArgs& args);
[[nodiscard]] SparseGradRows RowsOf(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_SPARSE_H_
