#ifndef FA_TILING_KEY_SUM_PLAN_H_
#define FA_TILING_KEY_SUM_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/task_graph.h"

namespace fa::tiling {

/// The tasks of a gradient in which every token adds to f32 sums per key. The first tasks clear the sums, then the
/// tasks of tokens add to them, then the last tasks write the sums. All these tasks form one list without edges, which
/// workers claim from the front.
struct KeySumPlan {
  int64_t columns = 0;  ///< number of floats of a key's sum
  int64_t units = 0;    ///< number of tasks of tokens; the tasks of one sequence add to its keys' sums in order
  /// For each sequence the number of its first key, counted through all sequences; the last entry is the number of all
  /// keys.
  std::vector<int64_t> first_key;
  int64_t keys_per_task = 0;  ///< number of keys that one task clears or writes
  int64_t key_tasks = 0;      ///< number of tasks that clear sums; as many tasks write them
  core::TaskGraph graph;
};

}  // namespace fa::tiling

#endif  // FA_TILING_KEY_SUM_PLAN_H_
