#ifndef FA_TILING_SPARSE_PLAN_H_
#define FA_TILING_SPARSE_PLAN_H_

#include <cstdint>
#include <string>

#include "core/integer.h"
#include "core/task_graph.h"

namespace fa::tiling {

/// The most heads of a tile. The heads share the tile's gathered keys. 144 heads are whole strips of 16, 24 and 48
/// lanes, and the Q and O of 144 heads stay in L2.
inline constexpr int64_t kMaxTileHeads = 144;

/// The tasks into which a sparse call is cut. The cost of a token depends on the token's number of keys, which is known
/// only in Run. So a plan cannot balance the load, and all workers claim tasks from the front of one list.
struct SparsePlan {
  const char* op = "";
  int64_t block_k = 0;     ///< number of keys gathered at a time, the same for all calls
  int64_t tile_heads = 0;  ///< number of heads that go through a token's keys together
  /// How many rows ahead values are prefetched into L1 when few heads read the keys in place; 0: no prefetch.
  int64_t values_ahead = 0;
  int64_t tokens_per_task = 1;  ///< number of consecutive tokens, which may belong to several sequences
  int64_t heads_per_task = 0;
  int64_t token_tasks = 0;
  double flops = 0;
  std::string reason;
  core::TaskGraph graph;  ///< the forward's graph; the backward's graph is in its KeySumPlan

  [[nodiscard]] int64_t head_tasks(int64_t heads) const { return core::CeilDiv(heads, heads_per_task); }
};

}  // namespace fa::tiling

#endif  // FA_TILING_SPARSE_PLAN_H_
