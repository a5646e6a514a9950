#ifndef FA_TILING_SIMULATE_H_
#define FA_TILING_SIMULATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/task_graph.h"

namespace fa::tiling {

/// The most tasks of a simulation. With this number a simulation takes 20 ms (forward) to 40 ms. Larger graphs are not
/// simulated: workers wait at the end of a run, which is a small part of so long a run.
inline constexpr int32_t kMaxSimulatedTasks = 200'000;

struct Simulated {
  int64_t makespan = 0;       ///< the time at which the last task ends
  std::vector<int64_t> busy;  ///< for each worker, the sum of its tasks' durations
  std::vector<int> worker;    ///< for each task, the worker that runs it
};

/// Simulates a run of the graph. Every worker claims tasks as core/run/executor.h describes, and task t takes
/// durations[t]. When a worker completes the last predecessor of claimed tasks, it runs the first of them next and
/// queues the others. Workers take queued tasks before they claim new ones: the earliest in claim order with
/// TaskGraph::earliest_first, otherwise the last one queued.
[[nodiscard]] Simulated Simulate(const core::TaskGraph& graph, std::span<const int64_t> durations);

[[nodiscard]] inline int64_t SimulateMakespan(const core::TaskGraph& graph, std::span<const int64_t> durations) {
  return Simulate(graph, durations).makespan;
}

}  // namespace fa::tiling

#endif  // FA_TILING_SIMULATE_H_
