#ifndef FA_OPS_BIND_INDEXER_H_
#define FA_OPS_BIND_INDEXER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "fa/lightning_indexer.h"
#include "fa/status.h"
#include "layout/rows.h"
#include "ops/bind/call_tensors.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/sparse_sequences.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {

/// The queries, keys and weights of an indexer as the caller gives them, and their names in messages.
struct IndexerInputs {
  const char *q_name, *k_name;
  const TensorView &q, &k, &weights;
  TensorView block_table;
  std::span<const int64_t> lengths_q, lengths_kv;
  Layout layout;
  SparseMask mask;
};

/// The same, checked. The forward and the gradients share them.
struct IndexerShape {
  SparseSequences sequences;
  DType dtype = DType::kF32, weights_dtype = DType::kF32;
  int64_t heads = 0, d = 0;
  layout::Rows q, k;
  layout::Stats weights;

  /// The heads of a token, q.head elements apart.
  [[nodiscard]] const void* QueryRow(const void* data, const SparseToken& token) const {
    return Address(data, dtype, q.Offset(token.sequence, 0, sequences.Row(token)));
  }
  /// A token's weights in f32.
  void ReadWeights(const core::kernels::RowKernels& kernels, const void* data, const SparseToken& token,
                   float* to) const {
    const void* from = Address(data, weights_dtype, weights.Offset(token.sequence, 0, sequences.Row(token)));
    kernels.widen({from, weights_dtype, heads}, 1, heads, to, heads);
  }
  [[nodiscard]] KeyPlace Place(int64_t sequence) const {
    return {sequence, sequences.list[static_cast<size_t>(sequence)].k_offset};
  }

 private:
  [[nodiscard]] static const void* Address(const void* data, DType dtype, int64_t offset) {
    return static_cast<const std::byte*>(data) + offset * static_cast<int64_t>(SizeOf(dtype));
  }
};

/// Finds every user error of these inputs. `tensors` then checks what else the call has.
[[nodiscard]] Result<IndexerShape> BindIndexerShape(const IndexerInputs& inputs, SparseTensors& tensors);

/// A validated forward.
struct BoundIndexer {
  IndexerShape shape;
  layout::Rows indices, values;
  int64_t entries = 0;  ///< keys selected per token
  bool has_values = false;
  bool paged = false;
  int64_t page_rows = 0, pages = 0, table_row = 0;
  std::vector<PlannedTensor> planned;

  [[nodiscard]] KeySources Sources(const LightningIndexerArgs& args) const;
};

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundIndexer> BindIndexer(const LightningIndexerArgs& args,
                                               const LightningIndexerOptions& options);

/// Checks in Run: tensors and lengths are the planned ones, no output shares an element with another tensor, and every
/// entry of block_table that is used is a page.
[[nodiscard]] Status CheckIndexerRunArgs(const BoundIndexer& bound, const LightningIndexerArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INDEXER_H_
