#ifndef FA_OPS_BIND_INDEXER_H_
#define FA_OPS_BIND_INDEXER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "fa/lightning_indexer.h"
#include "fa/status.h"
#include "layout/rows.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"
#include "ops/bind/planned_tensors.h"
#include "ops/tile/key_rows.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/sparse_sequences.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {

/// The queries, keys and weights of an indexer as the caller gives them, with their names in messages.
struct IndexerInputs {
  const char *q_name, *k_name;
  const TensorView &q, &k, &weights;
  TensorView block_table;
  std::span<const int64_t> lengths_q, lengths_kv;
  Layout layout;
  SparseMask mask;
  // LightningIndexer has both scales. MsaIndexScore has k_scale for keys of i8, and no scales for q and k of f8e4m3.
  // The members below also come from the sparse loss.
  TensorView q_scale = {}, k_scale = {};
  std::span<const int64_t> used_q = {}, used_kv = {}, residual_kv = {};
  int64_t cmp_ratio = 1;
  int64_t score_block = 0;  ///< as IndexerShape::score_block; if above 0, weights are not read
};

/// The inputs of an indexer in a run, with their layouts and addresses.
struct IndexerRows {
  layout::RowsView q, weights;
  layout::StoredRows k;
  layout::RowsView q_scale = {};    ///< null data: queries have no scales
  layout::StoredRows k_scale = {};  ///< one number per row; null data: keys have no scales
};

/// The checked inputs of an indexer, without addresses. The forward and the gradients share them.
struct IndexerShape {
  SparseSequences sequences;
  DType dtype = DType::kF32;  ///< the type for which kernels are chosen; bf16 if q and k are quantised
  int64_t heads = 0, d = 0;
  layout::Rows q, k;
  std::optional<QuantizedRow> quantized;  ///< how rows of k are stored if they are quantised
  bool q_quantized = false;
  DType q_stored = DType::kF32;  ///< the type of q's elements
  layout::Rows q_scale, k_scale;
  /// If above 0, the inner products q k get no weights and are not summed over the heads. Per token and head, the call
  /// then keeps the largest inner product of each block of `score_block` keys.
  int64_t score_block = 0;
  layout::Rows weights;  ///< layout of the weights; the weights of a query token are the row at (b, 0, s)

  /// Returns the number of blocks of the longest sequence, if score_block is not 0.
  [[nodiscard]] int64_t BlocksPerHead() const { return core::CeilDiv(sequences.max_sk, score_block); }
  /// Returns the heads of a query token as rows, one per head.
  [[nodiscard]] core::kernels::RowBlock Heads(const layout::RowsView& of, const SparseToken& token) const {
    return HeadsAt(of, token.sequence, 0, sequences.Row(token));
  }
  /// Converts a token's weights, or its scales, to f32.
  void ReadWeights(const core::kernels::RowKernels& kernels, const layout::RowsView& of, const SparseToken& token,
                   float* to) const {
    kernels.widen({of.At(token.sequence, 0, sequences.Row(token)), of.rows.dtype, heads}, 1, heads, to, heads);
  }
  /// Returns the type of k.
  [[nodiscard]] DType stored_dtype() const { return quantized ? quantized->dtype : dtype; }
  [[nodiscard]] KeyPlace Place(int64_t sequence) const {
    return {sequence, sequences.list[static_cast<size_t>(sequence)].k_offset};
  }
  /// Returns the tensors in a run, for calls whose keys do not lie in pages.
  [[nodiscard]] IndexerRows RowsOf(const TensorView& q_tensor, const TensorView& k_tensor,
                                   const TensorView& weights_tensor) const {
    return {.q = {q_tensor.data, q}, .weights = {weights_tensor.data, weights}, .k = {.view = {k_tensor.data, k}}};
  }
};

/// Returns the indexer's inputs for an operator whose arguments name them q_index and k_index.
template <typename Args, typename Options>
[[nodiscard]] IndexerInputs IndexInputsOf(const Args& args, const Options& options) {
  IndexerInputs inputs{.q_name = "q_index",
                       .k_name = "k_index",
                       .q = args.q_index,
                       .k = args.k_index,
                       .weights = args.weights,
                       .block_table = {},
                       .lengths_q = args.lengths_q,
                       .lengths_kv = args.lengths_kv,
                       .layout = options.layout,
                       .mask = options.mask};
  if constexpr (requires { args.residual_kv; }) {
    inputs.used_q = args.used_q;
    inputs.used_kv = args.used_kv;
    inputs.residual_kv = args.residual_kv;
    inputs.cmp_ratio = options.cmp_ratio;
  }
  return inputs;
}

/// Finds every user error of these inputs. `tensors` can then check the other tensors of the call.
[[nodiscard]] Result<IndexerShape> BindIndexerShape(const IndexerInputs& inputs, SparseTensors& tensors);

/// The sizes of a selection.
struct SelectionProblem {
  const SparseSequences& sequences;
  int64_t entries;  ///< number of keys selected per token
};

/// A validated call of the lightning indexer.
struct BoundIndexer {
  IndexerShape shape;
  layout::Rows indices, values, index_offset;
  int64_t entries = 0;  ///< number of keys selected per token
  bool has_values = false;
  bool paged = false;
  layout::BlockTable table;  ///< layout of the pages, without the table's entries
  std::vector<PlannedTensor> planned;

  /// Returns the sizes of the selection. The result refers to this object.
  [[nodiscard]] SelectionProblem Problem() const { return {shape.sequences, entries}; }
};

/// The tensors of a forward in a run, with their layouts and addresses.
struct SelectionRows {
  IndexerRows in;
  layout::MutableRowsView indices, values;  ///< indices and values; `values` has null data if no values are wanted
  layout::RowsView index_offset = {};       ///< i32; null data if nothing is added to the indices
};

/// Returns the tensors of checked arguments.
[[nodiscard]] SelectionRows RowsOf(const BoundIndexer& bound, const LightningIndexerArgs& args);

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundIndexer> BindIndexer(const LightningIndexerArgs& args,
                                               const LightningIndexerOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, and that no output shares an element with another
/// tensor. Also checks that every used entry of block_table is a page, and that index_offset keeps indices in range.
[[nodiscard]] Status CheckIndexerRunArgs(const BoundIndexer& bound, const LightningIndexerArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INDEXER_H_
