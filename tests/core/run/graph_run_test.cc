#include "core/run/graph_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <optional>
#include <thread>
#include <vector>

#include "core/run/random_graph.h"

namespace fa::core {
namespace {

TEST(WalkToEnd, AWorkerStaysUntilEveryTaskHasRun) {
  constexpr int kWorkers = 3, kGraphs = 40, kRunsPerGraph = 200;
  // The state of the current run, for all threads of the test.
  std::optional<GraphRun> run;
  std::atomic<int32_t> ran{0};
  int32_t tasks = 0;
  std::atomic<int> early{0};
  bool ended = false;
  std::barrier all(kWorkers + 1);
  std::vector<std::thread> workers;
  for (int worker = 0; worker < kWorkers; ++worker) {
    workers.emplace_back([&, worker] {
      for (;;) {
        all.arrive_and_wait();
        if (ended) return;
        run->WalkToEnd(worker);
        early += ran.load() < tasks ? 1 : 0;
        all.arrive_and_wait();
      }
    });
  }
  auto task = [&](int32_t, int) { ++ran; };
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const TaskGraph graph = test::RandomGraph(seed, 200, kWorkers);
    const test::StateMemory state(graph);
    // In a graph without edges, a worker may leave before all tasks have run.
    tasks = graph.has_edges() ? graph.task_count : 0;
    for (int i = 0; i < kRunsPerGraph; ++i) {
      ran = 0;
      run.emplace(graph, TaskFunction(task), state.get());
      all.arrive_and_wait();
      all.arrive_and_wait();
      ASSERT_EQ(ran.load(), graph.task_count) << "seed " << seed;
    }
  }
  EXPECT_EQ(early.load(), 0);
  ended = true;
  all.arrive_and_wait();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace fa::core
