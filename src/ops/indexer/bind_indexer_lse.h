#ifndef FA_OPS_BIND_INDEXER_LSE_H_
#define FA_OPS_BIND_INDEXER_LSE_H_

#include <vector>

#include "fa/indexer_lse.h"
#include "layout/rows_view.h"
#include "ops/indexer/bind_indexer.h"

namespace fa::ops {

/// A validated call for the statistics of an indexer's scores.
struct BoundIndexerLse {
  IndexerShape shape;
  layout::Stats max, sum;
  std::vector<PlannedTensor> planned;

  /// Returns the sequences of the scores, which are part of this object.
  [[nodiscard]] const SparseSequences& Problem() const { return shape.sequences; }
};

/// The inputs and the statistics in a run, with their layouts and addresses.
struct StatisticsRows {
  IndexerRows in;
  layout::MutableStatsView max, sum;
};

/// Returns the tensors of checked arguments.
[[nodiscard]] StatisticsRows RowsOf(const BoundIndexerLse& bound, const DenseIndexerLseArgs& args);

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundIndexerLse> BindIndexerLse(const DenseIndexerLseArgs& args,
                                                     const DenseIndexerLseOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, and that no output shares an element with another
/// tensor.
[[nodiscard]] Status CheckIndexerRunArgs(const BoundIndexerLse& bound, const DenseIndexerLseArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INDEXER_LSE_H_
