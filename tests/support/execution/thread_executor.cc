#include "support/execution/thread_executor.h"

#include <atomic>
#include <thread>
#include <vector>

#include "core/run/graph_run.h"

namespace fa::test {

Status ThreadExecutor::Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) {
  return RunOnThreads(graph, run_task, state, nullptr);
}

Status ThreadExecutor::RunWithArrivals(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state,
                                       core::Arrivals& arrivals) {
  return RunOnThreads(graph, run_task, state, &arrivals);
}

Status ThreadExecutor::RunOnThreads(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state,
                                    core::Arrivals* arrivals) {
  // The counters use relaxed memory order. A stronger order would hide races between tasks that the graph leaves
  // unordered.
  std::atomic<int32_t> finished{0};
  std::atomic<bool> failed{false};
  auto counted = [&](int32_t task, int worker) {
    try {
      run_task(task, worker);
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      throw;
    }
    finished.fetch_add(1, std::memory_order_relaxed);
  };
  core::GraphRun run(graph, core::TaskFunction(counted), state, arrivals);

  auto walk = [&](int worker) {
    while (finished.load(std::memory_order_relaxed) < graph.task_count && !failed.load(std::memory_order_relaxed)) {
      run.Walk(worker, [](int) {});
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int worker = 1; worker < workers_; ++worker) threads.emplace_back(walk, worker);
  if (arrivals != nullptr) {
    run.WalkAndPoll(0, [](int) {});
    if (run.failed()) failed.store(true, std::memory_order_relaxed);
  }
  walk(0);
  for (std::thread& thread : threads) thread.join();
  return run.TakeStatus();
}

}  // namespace fa::test
