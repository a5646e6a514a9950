#ifndef FA_TILING_SIMULATE_H_
#define FA_TILING_SIMULATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/task_graph.h"

namespace fa::tiling {

/// The most tasks of a simulation. A simulation of this many tasks takes 20 ms for a forward, and at most 40 ms. Larger
/// graphs are not simulated, because workers wait mainly at the end of a run, which is a small part of a long run.
inline constexpr int32_t kMaxSimulatedTasks = 200'000;

struct Simulated {
  int64_t makespan = 0;       ///< the time at which the last task ends
  std::vector<int64_t> busy;  ///< for each worker, the sum of its tasks' durations
  std::vector<int> worker;    ///< for each task, the worker that runs it
};

/// Simulates a run of the graph. Every worker claims tasks as core/run/executor.h describes, and task t takes
/// durations[t]. The end of a task may free claimed tasks. The worker then runs the first freed task next, and queues
/// the other freed tasks. Workers take queued tasks before they claim new tasks. With TaskGraph::earliest_first they
/// take the queued task that is earliest in claim order, otherwise the task that was queued last.
[[nodiscard]] Simulated Simulate(const core::TaskGraph& graph, std::span<const int64_t> durations);

[[nodiscard]] inline int64_t SimulateMakespan(const core::TaskGraph& graph, std::span<const int64_t> durations) {
  return Simulate(graph, durations).makespan;
}

}  // namespace fa::tiling

#endif  // FA_TILING_SIMULATE_H_
