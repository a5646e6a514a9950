#ifndef FA_TILING_INDEXER_PLAN_H_
#define FA_TILING_INDEXER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// The most tokens of a group. A strip of keys is packed once per group. With 16 tokens of 64 heads, packing takes
/// about a hundredth of the time that the products take in vectors. A tile unit's products take less time.
inline constexpr int64_t kMostIndexerGroup = 16;

/// The work of one task: the scores of some tokens of a sequence against an interval of the sequence's keys.
struct IndexerItem {
  int64_t sequence = 0;
  Interval rows;
  Interval keys;
  int64_t first_token = 0;  ///< number of the first row's token, counted through all sequences
};

/// The tasks of an indexer's forward. The forward computes a row of scores for each token, and then selects keys from
/// the row or takes the row's statistics. Results do not depend on how tokens are grouped or keys are cut, because
/// every score is computed by itself.
struct IndexerPlan {
  std::vector<IndexerItem> items;  ///< one task per item
  /// Whether the keys of a token are cut into several items. If so, the items write scores to the workspace. After the
  /// items of a token, one further task selects keys or takes statistics from the scores. If keys are not cut, an item
  /// has all keys that its tokens may see, and the item's task also selects keys or takes statistics.
  bool cut = false;
  int64_t group = 0;  ///< most tokens per item
  core::TaskGraph graph;
  std::vector<double> load;
  double flops = 0, flops_full = 0, flops_visited = 0;
  std::string reason;
};

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_PLAN_H_
