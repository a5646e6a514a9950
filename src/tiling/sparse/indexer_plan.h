#ifndef FA_TILING_INDEXER_PLAN_H_
#define FA_TILING_INDEXER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// The scores of some tokens of a sequence with an interval of its keys.
struct IndexerItem {
  int64_t sequence = 0;
  Interval rows;
  Interval keys;
  int64_t first_token = 0;  ///< of rows, counted through all sequences
};

/// The tasks of an indexer's forward, which makes something of each token's row of scores: selects keys, or takes
/// statistics. The grouping of tokens and the cut of keys change no bit: a score does not depend
/// on others.
struct IndexerPlan {
  std::vector<IndexerItem> items;  ///< one task each
  /// Keys are cut, scores lie in the workspace, and one task per token, after those of its keys, takes its row. If not,
  /// the keys of an item are all that its tokens may see, and the item's task takes their rows too.
  bool cut = false;
  int64_t group = 0;  ///< largest number of tokens per item
  core::TaskGraph graph;
  std::vector<double> load;
  double flops = 0, flops_full = 0, flops_visited = 0;
  std::string reason;
};

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_PLAN_H_
