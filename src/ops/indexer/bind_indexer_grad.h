#ifndef FA_OPS_BIND_INDEXER_GRAD_H_
#define FA_OPS_BIND_INDEXER_GRAD_H_

#include <cstdint>
#include <vector>

#include "fa/lightning_indexer_grad.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/token/key_selection.h"

namespace fa::ops {

/// A validated backward of the indexer.
struct BoundIndexerGrad {
  IndexerShape shape;
  KeyLists lists;
  layout::Rows d_values;
  IndexerGradRows gradients;
  bool check_indices = true;
  std::vector<PlannedTensor> planned;
};

/// The tensors of a backward in a run, with their layouts and addresses.
struct SelectionGradRows {
  IndexerRows in;
  layout::RowsView indices;  ///< lists of keys; the list of a query token is the row at (b, 0, s)
  layout::RowsView d_values;
  IndexerGradViews gradients;
};

/// Returns the tensors of checked arguments.
[[nodiscard]] SelectionGradRows RowsOf(const BoundIndexerGrad& bound, const LightningIndexerGradArgs& args);

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundIndexerGrad> BindIndexerGrad(const LightningIndexerGradArgs& args,
                                                       const LightningIndexerGradOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, and that no output shares an element with another
/// tensor. If check_indices is set, also checks that indices are keys.
[[nodiscard]] Status CheckIndexerGradRunArgs(const BoundIndexerGrad& bound, const LightningIndexerGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INDEXER_GRAD_H_
