#ifndef FA_TILING_KEY_SUM_PLAN_H_
#define FA_TILING_KEY_SUM_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/task_graph.h"

namespace fa::tiling {

/// The tasks of a gradient whose tokens add to f32 sums of keys: tasks that clear the sums, then tasks of tokens, then
/// tasks that write the sums. They are one list without edges, claimed from the front.
struct KeySumPlan {
  int64_t columns = 0;  ///< floats of the sum of one key
  int64_t units = 0;    ///< tasks of tokens, in order; the tasks of one sequence take turns at its keys
  /// Number of the first key of each sequence; the last entry is the number of all keys.
  std::vector<int64_t> first_key;
  int64_t keys_per_task = 0;  ///< keys that one task clears or writes
  int64_t key_tasks = 0;      ///< tasks that clear; as many write
  core::TaskGraph graph;
};

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_SUM_PLAN_H_
