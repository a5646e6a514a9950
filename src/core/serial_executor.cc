#include "core/serial_executor.h"

#include <random>
#include <utility>
#include <vector>

#include "core/graph_run.h"
#include "core/guarded_call.h"

namespace fa::core {
namespace {

void RunShuffled(const TaskGraph& graph, TaskFunction run_task, uint64_t seed) {
  std::vector<int32_t> waiting_for(graph.predecessor_count);
  waiting_for.resize(static_cast<size_t>(graph.task_count), 0);
  std::vector<int32_t> ready;
  for (int32_t task = 0; task < graph.task_count; ++task) {
    if (waiting_for[static_cast<size_t>(task)] == 0) ready.push_back(task);
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const int32_t task = ready.back();
    ready.pop_back();
    run_task(task, 0);
    if (!graph.has_edges()) continue;
    const auto begin = graph.successor_begin.begin() + task;
    for (int64_t e = begin[0]; e < begin[1]; ++e) {
      const int32_t successor = graph.successors[static_cast<size_t>(e)];
      if (--waiting_for[static_cast<size_t>(successor)] == 0) ready.push_back(successor);
    }
  }
}

}  // namespace

Status RunInOrder(const TaskGraph& graph, TaskFunction run_task) {
  return GuardedCall(kInsideATask, [&] {
    for (int64_t position = 0; position < graph.task_count; ++position) run_task(graph.TaskAt(position), 0);
    return Status::Ok();
  });
}

Status SerialExecutor::Run(const TaskGraph& graph, TaskFunction run_task, std::byte* /*state*/) {
  if (!shuffle_seed_) return RunInOrder(graph, run_task);
  return GuardedCall(kInsideATask, [&] {
    RunShuffled(graph, run_task, *shuffle_seed_);
    return Status::Ok();
  });
}

}  // namespace fa::core
