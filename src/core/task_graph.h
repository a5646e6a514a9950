#ifndef FA_CORE_TASK_GRAPH_H_
#define FA_CORE_TASK_GRAPH_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fa::core {

/// Tasks 0..task_count-1, the edges between them, and the order in which workers claim them. A task graph is plain
/// data. A planner makes the graph, and an Executor, which knows nothing else about the call, runs it.
struct TaskGraph {
  int32_t task_count = 0;

  /// Edges in CSR form. All three vectors are empty if no task waits for another.
  std::vector<int32_t> predecessor_count;  ///< the number of predecessors of each task
  std::vector<int64_t> successor_begin;    ///< task_count + arrivals + 1 entries
  std::vector<int32_t> successors;

  /// The task at claim position p is order[p]; if `order` is empty, the task is p. The order is always topological: a
  /// task stands behind all its predecessors. So tasks can run serially in this order once all inputs have arrived.
  std::vector<int32_t> order;

  /// Worker c starts with the claim positions [range_begin[c], range_begin[c + 1]). There are workers + 1 entries.
  std::vector<int64_t> range_begin;
  /// Whether all workers claim from the front of one list. Worker 0's range then holds every position, all other ranges
  /// are empty, and no worker takes the back half of a range. This suits graphs in which edges decide which tasks can
  /// run (the backward).
  bool shared_claims = false;
  /// Which ready task workers take first. If true, they take the earliest in claim order, otherwise the task that
  /// became ready last. Claim order helps if another process waits for the results of early tasks, or if early tasks
  /// take longest.
  bool earliest_first = false;
  /// The claim position of each task. It is needed only for earliest_first with an `order` that is not empty.
  std::vector<int32_t> position;

  /// The number of inputs that arrive during the run (Arrivals, core/run/executor.h). In successor_begin and
  /// `successors`, input a has the number task_count + a. Its successors count it among their predecessors.
  int32_t arrivals = 0;

  /// The NUMA node on which worker c's range should run. An empty vector means any node.
  std::vector<int16_t> range_node;

  [[nodiscard]] bool has_edges() const { return !successors.empty(); }
  [[nodiscard]] int workers() const { return static_cast<int>(range_begin.size()) - 1; }
  [[nodiscard]] int32_t TaskAt(int64_t place) const {
    assert(place >= 0 && place < task_count);
    return order.empty() ? static_cast<int32_t>(place) : order[static_cast<size_t>(place)];
  }
  /// Returns whether task a stands behind task b in the claim order of a graph with earliest_first.
  [[nodiscard]] bool IsLater(int32_t a, int32_t b) const {
    return order.empty() ? a > b : position[static_cast<size_t>(a)] > position[static_cast<size_t>(b)];
  }
};

}  // namespace fa::core

#endif  // FA_CORE_TASK_GRAPH_H_
