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

/// What runs in an indexer's forward. How tokens are grouped and keys are cut changes no bit: a score stands alone.
struct IndexerPlan {
  std::vector<IndexerItem> items;  ///< one task each
  /// Keys are cut, scores lie in the workspace, and a task a token behind those of its keys selects. Else an item's
  /// keys are all that its tokens may select, and it selects too.
  bool cut = false;
  int64_t group = 0;  ///< tokens an item at most
  core::TaskGraph graph;
  std::vector<double> load;
  double flops = 0, flops_full = 0, flops_visited = 0;
  std::string reason;
};

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_PLAN_H_
