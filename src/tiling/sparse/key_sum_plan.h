#ifndef FA_TILING_KEY_SUM_PLAN_H_
#define FA_TILING_KEY_SUM_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/task_graph.h"

namespace fa::tiling {

/// The tasks of a gradient whose tokens add to f32 sums of keys: those that clear the sums, the tokens', those that
/// write them. One list, claimed from the front, without edges.
struct KeySumPlan {
  int64_t columns = 0;             ///< of a key's sum
  int64_t units = 0;               ///< tasks of tokens, in order; those of one sequence take turns at its keys
  std::vector<int64_t> first_key;  ///< of each sequence, then all
  int64_t keys_per_task = 0;       ///< of those that clear, and of those that write
  int64_t key_tasks = 0;           ///< that clear, and as many that write
  core::TaskGraph graph;
};

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_SUM_PLAN_H_
