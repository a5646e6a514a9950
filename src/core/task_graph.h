#ifndef FA_CORE_TASK_GRAPH_H_
#define FA_CORE_TASK_GRAPH_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fa::core {

/// Tasks 0..task_count-1, the order edges between them, and the order in which workers claim them. Plain data; made
/// by a planner, run by an Executor, which knows nothing else.
struct TaskGraph {
  int32_t task_count = 0;

  /// Edges in CSR form; all three empty when no task waits for another.
  std::vector<int32_t> predecessor_count;  ///< per task
  std::vector<int64_t> successor_begin;    ///< task_count + arrivals + 1 entries
  std::vector<int32_t> successors;

  /// order[p] = task at claim position p; empty = identity. Always topological: a task stands after all its
  /// predecessors, so running the order serially is valid once all inputs have arrived.
  std::vector<int32_t> order;

  /// Worker c starts with the claim positions [range_begin[c], range_begin[c + 1]); workers + 1 entries.
  std::vector<int64_t> range_begin;
  /// All workers claim from the front of one list: worker 0's range holds every position, the others are empty, and
  /// it is never cut. For graphs whose edges, not ranges, decide who can run (the backward).
  bool shared_claims = false;
  /// Tasks that became ready behind the claims are taken in claim order, not the latest first: somebody outside waits
  /// for the earlier ones. Claim order is then that of the tasks' ids (`order` is empty).
  bool earliest_first = false;

  /// Inputs that arrive during the run (Arrivals, core/run/executor.h). Input a has the successors of number
  /// task_count + a, which count it as one of their predecessors.
  int32_t arrivals = 0;

  /// NUMA node on which worker c's range should run; empty = any node.
  std::vector<int16_t> range_node;

  [[nodiscard]] bool has_edges() const { return !successors.empty(); }
  [[nodiscard]] int workers() const { return static_cast<int>(range_begin.size()) - 1; }
  [[nodiscard]] int32_t TaskAt(int64_t position) const {
    assert(position >= 0 && position < task_count);
    return order.empty() ? static_cast<int32_t>(position) : order[static_cast<size_t>(position)];
  }
};

}  // namespace fa::core

#endif  // FA_CORE_TASK_GRAPH_H_
