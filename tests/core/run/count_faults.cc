#include "core/run/count_faults.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/run/random_graph.h"

namespace fa::test {
namespace {

std::vector<std::vector<int32_t>> Predecessors(const core::TaskGraph& graph) {
  std::vector<std::vector<int32_t>> predecessors(static_cast<size_t>(graph.task_count));
  for (int32_t task = 0; graph.has_edges() && task < graph.task_count; ++task) {
    const size_t t = static_cast<size_t>(task);
    for (int64_t e = graph.successor_begin[t]; e < graph.successor_begin[t + 1]; ++e) {
      predecessors[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])].push_back(task);
    }
  }
  return predecessors;
}

}  // namespace

int CountFaults(core::Executor& executor, const core::TaskGraph& graph) {
  const StateMemory state(graph);
  const size_t tasks = static_cast<size_t>(graph.task_count);
  const std::vector<std::vector<int32_t>> predecessors = Predecessors(graph);
  std::vector<std::atomic<int>> runs(tasks);
  // Only the graph's edges order accesses to these plain integers. If an edge is not obeyed, ThreadSanitizer reports a
  // race.
  std::vector<int64_t> depth(tasks, 0);
  std::vector<std::atomic<int>> busy(static_cast<size_t>(executor.workers()));
  std::atomic<int> faults{0};

  auto run_task = [&](int32_t task, int worker) {
    if (worker < 0 || worker >= executor.workers()) {
      faults.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    std::atomic<int>& slot = busy[static_cast<size_t>(worker)];
    if (slot.fetch_add(1, std::memory_order_relaxed) != 0) faults.fetch_add(1, std::memory_order_relaxed);
    const size_t t = static_cast<size_t>(task);
    depth[t] = 1;
    for (int32_t before : predecessors[t]) {
      const int64_t other = depth[static_cast<size_t>(before)];
      if (other == 0) faults.fetch_add(1, std::memory_order_relaxed);
      depth[t] = std::max(depth[t], other + 1);
    }
    runs[t].fetch_add(1, std::memory_order_relaxed);
    slot.fetch_sub(1, std::memory_order_relaxed);
  };
  if (!executor.Run(graph, core::TaskFunction(run_task), state.get()).ok()) ++faults;
  for (size_t t = 0; t < tasks; ++t) {
    if (runs[t].load() != 1 || depth[t] == 0) ++faults;
  }
  return faults.load();
}

}  // namespace fa::test
