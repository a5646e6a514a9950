// Tests two phases of tasks with one task between them, the barrier, which waits for the whole first phase. Workers
// that leave at the barrier must come back for the second phase. If a worker is missing, a signal ends the program, so
// that the suite does not hang.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "core/run/flow_executor.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

constexpr unsigned kSecondsToDeadlock = 300;
constexpr int kWorkers = 4;
constexpr int kRuns = 300;
constexpr int kLongestBarrier = 3000;

// Returns kWorkers tasks, the barrier, and kWorkers tasks behind it.
TaskGraph TwoPhases() {
  TaskGraph graph = test::FlatGraph(2 * kWorkers + 1, kWorkers);
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int32_t task = 0; task < kWorkers; ++task) {
    edges.emplace_back(task, kWorkers);
    edges.emplace_back(kWorkers, kWorkers + 1 + task);
  }
  test::AddEdges(graph, edges);
  graph.range_begin.assign(kWorkers + 1, graph.task_count);
  graph.range_begin[0] = 0;
  graph.shared_claims = true;
  return graph;
}

class Barrier : public testing::Test {
 protected:
  Barrier() { alarm(kSecondsToDeadlock); }
  ~Barrier() override { alarm(0); }
};

TEST_F(Barrier, EveryWorkerReachesAWidePhaseBehindIt) {
  FlowExecutor executor(std::vector<FlowExecutor::Node>{{.workers = kWorkers}});
  const TaskGraph graph = TwoPhases();
  const test::StateMemory state(graph);
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int> before{0}, behind{0};
    const auto wait_for_all = [](std::atomic<int>& phase) {
      ++phase;
      while (phase.load() < kWorkers) std::this_thread::yield();
    };
    auto run_task = [&](int32_t task, int) {
      if (task < kWorkers) return wait_for_all(before);
      if (task > kWorkers) return wait_for_all(behind);
      // The barrier's duration varies, so that the other workers leave either before or after the second phase is
      // ready.
      for (int i = 0; i < run % kLongestBarrier; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    };
    ASSERT_TRUE(executor.Run(graph, TaskFunction(run_task), state.get()).ok());
    ASSERT_EQ(behind.load(), kWorkers);
  }
}

}  // namespace
}  // namespace fa::core
