#ifndef FA_OPS_INDEXER_GRADIENT_H_
#define FA_OPS_INDEXER_GRADIENT_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/plan/carver.h"
#include "ops/tile/head_strips.h"
#include "ops/token/key_selection.h"
#include "ops/token/key_sum_tasks.h"
#include "ops/token/ordered_commit.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {

/// The gradients of an indexer as the caller gives them.
struct IndexerGradients {
  const char *dq_name, *dk_name;
  const MutableTensorView &dq, &dk, &dweights;
};

/// The layouts of an indexer's checked gradients. The gradients have the types of the inputs.
struct IndexerGradRows {
  layout::Rows dq, dk;
  layout::Rows dweights;  ///< layout of dweights; the values of a query token are the row at (b, 0, s)
};

/// The gradients of an indexer in a run.
struct IndexerGradViews {
  layout::MutableRowsView dq, dk, dweights;
};
[[nodiscard]] inline IndexerGradViews ViewsOf(const IndexerGradRows& rows, const IndexerGradients& gradients) {
  return {{gradients.dq.data, rows.dq}, {gradients.dk.data, rows.dk}, {gradients.dweights.data, rows.dweights}};
}

[[nodiscard]] Result<IndexerGradRows> BindIndexerGradients(const IndexerGradients& gradients,
                                                           const SparseTensors& tensors, const IndexerShape& shape);

/// Writes 0 to the gradients of tokens and keys that no sequence uses.
void ClearUnusedGradients(const IndexerShape& shape, const IndexerGradViews& gradients);

/// Computes the gradients of one query token. Let S be the products of its heads with the keys, w its weights, dI the
/// gradients of its scores, and E = w dI where S > 0, else 0. Then dw = sum of dI max(0, S), dq = E K, dk += E^T q.
/// Heads lie along the lanes.
class IndexerGradient {
 public:
  IndexerGradient(const IndexerShape& shape, const core::kernels::KernelTable& table);

  /// The memory for one token's gradient.
  struct Token {
    Token() = default;
    Token(Carver& carver, const IndexerGradient& gradient, int64_t block);
    float* panel = nullptr;   ///< q, packed for the scores
    float* q_rows = nullptr;  ///< q, packed for the product `outer`
    float* weights = nullptr;
    float* d_weights = nullptr;
    float* dq = nullptr;     ///< dQ, strip after strip, each [d][width]
    float* pairs = nullptr;  ///< for kernels of bf16 pairs: one strip's E in bf16, two keys per word
  };

  [[nodiscard]] const HeadStrips& strips() const { return strips_; }
  [[nodiscard]] const core::kernels::IndexerKernels& kernels() const { return kernels_; }
  /// Returns how rows of K are gathered, in blocks of `block` keys.
  [[nodiscard]] GatherShape Gather(int64_t block) const;

  /// Packs the queries and weights of a token, and clears its sums.
  void Begin(const SparseToken& at, const IndexerRows& rows, const Token& token) const;
  /// Computes s, the products of all heads with a block's keys, in the tile layout of HeadStrips.
  void Products(const core::kernels::RowBlock& rows, int64_t keys, const Token& token, float* s) const;
  /// Computes scores[key] = sum over the heads of w max(0, s).
  void Scores(const float* s, int64_t keys, const Token& token, float* scores) const;
  /// Turns s into E, and adds the keys' terms to dw and dq. @param rows  rows of K, packed for `product`
  void AddQuerySide(const core::kernels::RowBlock& rows, int64_t keys, const float* d_scores, float* s,
                    const Token& token) const;
  /// Adds E^T q to dk for the keys [begin, end), which are all different, of a block of `keys` keys. `e` is E, with
  /// which AddQuerySide has overwritten s.
  /// @param dk  the address of each key's sum
  void AddKeySide(const float* e, int64_t keys, int64_t begin, int64_t end, float* const* dk, const Token& token) const;
  /// A block of a query token's selected keys. AddSelected adds the block's terms to dw and dq and, in the order of
  /// tokens, to dk.
  struct SelectedBlock {
    const SelectedKeys& selected;
    int64_t first, count;          ///< the keys [first, first + count) among the selected ones
    core::kernels::RowBlock rows;  ///< gathered rows of K, packed for `product`
    const float* d_scores;
    float* s;         ///< products of all heads with the keys, in the tile layout of HeadStrips
    float** targets;  ///< memory for the addresses of the keys' sums of dk, `count` pointers
  };
  void AddSelected(const SelectedBlock& block, const Token& token, const KeySumTasks::Run& sums, int64_t sequence,
                   OrderedCommit::Turn& turn) const;
  /// Writes the token's gradients, times `multiplier`.
  void Finish(const SparseToken& at, const IndexerGradViews& gradients, float multiplier, const Token& token) const;

 private:
  const IndexerShape& shape_;
  const core::kernels::KernelTable& table_;
  const core::kernels::IndexerKernels& kernels_;
  HeadStrips strips_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INDEXER_GRADIENT_H_
