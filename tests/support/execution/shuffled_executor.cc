#include "support/execution/shuffled_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/run/graph_run.h"
#include "core/run/guarded_call.h"

namespace fa::test {
namespace {

std::vector<int32_t> RandomOrder(const core::TaskGraph& graph, std::mt19937_64* random) {
  std::vector<int32_t> waits = graph.predecessor_count, ready, order;
  waits.resize(static_cast<size_t>(graph.task_count));
  for (int32_t task = 0; task < graph.task_count; ++task) {
    if (waits[task] == 0) ready.push_back(task);
  }
  while (!ready.empty()) {
    std::swap(ready[(*random)() % ready.size()], ready.back());
    const int32_t task = ready.back();
    ready.pop_back();
    order.push_back(task);
    if (!graph.has_edges()) continue;
    for (int64_t e = graph.successor_begin[task]; e < graph.successor_begin[task + 1]; ++e) {
      if (--waits[graph.successors[e]] == 0) ready.push_back(graph.successors[e]);
    }
  }
  return order;
}

}  // namespace

Status ShuffledExecutor::Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* /*state*/) {
  return core::GuardedCall(core::kInsideATask, [&]() -> Status {
    const std::vector<int32_t> order = RandomOrder(graph, &random_);
    if (std::ssize(order) != graph.task_count) return Status::Internal("the graph has a cycle");
    const auto workers = static_cast<unsigned>(std::min(workers_, graph.workers()));
    for (const int32_t task : order) run_task(task, static_cast<int>(random_() % workers));
    return Status::Ok();
  });
}

}  // namespace fa::test
