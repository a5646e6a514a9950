#include "core/run/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/run/count_faults.h"
#include "core/run/flow_executor.h"
#include "core/run/random_graph.h"
#include "core/run/serial_executor.h"
#include "support/execution/shuffled_executor.h"
#include "support/execution/thread_executor.h"

namespace fa::core {
namespace {

using test::AddEdges;
using test::FlatGraph;
using test::RandomGraph;
using test::StateMemory;

void ExpectCorrectRun(Executor& executor, const TaskGraph& graph) { EXPECT_EQ(test::CountFaults(executor, graph), 0); }

std::vector<FlowExecutor::Node> Nodes(std::initializer_list<int> workers) {
  std::vector<FlowExecutor::Node> nodes;
  for (int n : workers) nodes.push_back({.workers = n});
  return nodes;
}

struct ExecutorCase {
  std::string name;
  std::unique_ptr<Executor> (*make)();
};

template <int kWorkers>
std::unique_ptr<Executor> MakeFlow() {
  return std::make_unique<FlowExecutor>(Nodes({kWorkers}));
}
template <int kWorkers>
std::unique_ptr<Executor> MakeThreads() {
  return std::make_unique<test::ThreadExecutor>(kWorkers);
}

class ExecutorTest : public testing::TestWithParam<ExecutorCase> {
 protected:
  std::unique_ptr<Executor> executor_ = GetParam().make();
};

TEST_P(ExecutorTest, RunsEveryTaskOnceAfterItsPredecessors) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int planned_workers = 1 + static_cast<int>(seed % 9);
    ExpectCorrectRun(*executor_, RandomGraph(seed, 1 + static_cast<int32_t>(seed * seed % 500), planned_workers,
                                             1 + static_cast<int>(seed % 3)));
  }
}

TEST_P(ExecutorTest, RunsGraphsOfSharedClaims) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TaskGraph graph = RandomGraph(seed, 200, 4);
    graph.range_begin = {0, 200, 200, 200, 200};
    graph.shared_claims = true;
    ExpectCorrectRun(*executor_, graph);
  }
}

TEST_P(ExecutorTest, RunsGraphsWithoutEdges) {
  for (int32_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    SCOPED_TRACE(testing::Message() << tasks << " tasks");
    for (int workers : {1, 2, 8, 64}) ExpectCorrectRun(*executor_, FlatGraph(tasks, workers));
  }
}

TEST_P(ExecutorTest, RunsOneLongChainAcrossTheRanges) {
  TaskGraph graph = FlatGraph(500, 4);
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int32_t task = 1; task < 500; ++task) edges.emplace_back(task - 1, task);
  AddEdges(graph, edges);
  ExpectCorrectRun(*executor_, graph);
}

TEST_P(ExecutorTest, RunsWavesOfManyTasksFreedByOne) {
  // Each of the tasks 0, 33, 66, ... frees the 32 tasks after it. These 32 together free the next one.
  TaskGraph graph = FlatGraph(660, 3);
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int32_t gate = 0; gate < 660; gate += 33) {
    for (int32_t task = gate + 1; task < gate + 33; ++task) {
      edges.emplace_back(gate, task);
      if (gate + 33 < 660) edges.emplace_back(task, gate + 33);
    }
  }
  AddEdges(graph, edges);
  for (int run = 0; run < 20; ++run) ExpectCorrectRun(*executor_, graph);
}

TEST_P(ExecutorTest, TurnsBadAllocInATaskIntoOutOfMemory) {
  const TaskGraph graph = RandomGraph(5, 300, 4);
  StateMemory state(graph);
  for (int run = 0; run < 20; ++run) {
    auto run_task = [&](int32_t task, int) {
      if (task == 77) throw std::bad_alloc();
    };
    const Status status = executor_->Run(graph, TaskFunction(run_task), state.get());
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.message();
  }
  ExpectCorrectRun(*executor_, graph);
}

TEST_P(ExecutorTest, KeepsTheTextOfAnExceptionAndSkipsWhatFollows) {
  TaskGraph graph = FlatGraph(100, 4);
  std::vector<std::pair<int32_t, int32_t>> edges;
  for (int32_t task = 1; task < 100; ++task) edges.emplace_back(0, task);
  AddEdges(graph, edges);
  StateMemory state(graph);
  std::atomic<int> started{0};
  auto run_task = [&](int32_t, int) {
    ++started;
    throw std::runtime_error("tile 0 is bad");
  };
  const Status status = executor_->Run(graph, TaskFunction(run_task), state.get());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "internal error: tile 0 is bad");
  EXPECT_EQ(started.load(), 1);
}

TEST_P(ExecutorTest, KeepsOneOfManyFailures) {
  const TaskGraph graph = FlatGraph(200, 4);
  StateMemory state(graph);
  auto run_task = [](int32_t, int) { throw 1; };
  for (int run = 0; run < 20; ++run) {
    EXPECT_EQ(executor_->Run(graph, TaskFunction(run_task), state.get()).code(), StatusCode::kInternal);
  }
}

TEST_P(ExecutorTest, HandsResultsBackToTheCaller) {
  const TaskGraph graph = FlatGraph(64, 4);
  StateMemory state(graph);
  std::vector<int> results(64, 0);  // plain integers: the end of Run must order the writes before the caller's reads
  for (int run = 1; run <= 50; ++run) {
    auto run_task = [&](int32_t task, int) { results[static_cast<size_t>(task)] += run; };
    EXPECT_TRUE(executor_->Run(graph, TaskFunction(run_task), state.get()).ok());
    EXPECT_EQ(results, std::vector<int>(64, run * (run + 1) / 2));
  }
}

std::unique_ptr<Executor> MakeTwoNodes() { return std::make_unique<FlowExecutor>(Nodes({3, 2})); }

INSTANTIATE_TEST_SUITE_P(
    All, ExecutorTest,
    testing::Values(ExecutorCase{"Serial", [] { return std::unique_ptr<Executor>(new SerialExecutor); }},
                    ExecutorCase{"Shuffled",
                                 [] { return std::unique_ptr<Executor>(new test::ShuffledExecutor(42, 3)); }},
                    ExecutorCase{"Flow1", MakeFlow<1>}, ExecutorCase{"Flow2", MakeFlow<2>},
                    ExecutorCase{"Flow3", MakeFlow<3>}, ExecutorCase{"Flow4", MakeFlow<4>},
                    ExecutorCase{"Flow5", MakeFlow<5>}, ExecutorCase{"Flow6", MakeFlow<6>},
                    ExecutorCase{"Flow7", MakeFlow<7>}, ExecutorCase{"Flow8", MakeFlow<8>},
                    ExecutorCase{"FlowOnTwoNodes", MakeTwoNodes}, ExecutorCase{"Threads1", MakeThreads<1>},
                    ExecutorCase{"Threads3", MakeThreads<3>}, ExecutorCase{"Threads8", MakeThreads<8>}),
    [](const auto& info) { return info.param.name; });

TEST(SerialExecutor, RunsInClaimOrder) {
  const TaskGraph graph = RandomGraph(3, 50, 4);
  std::vector<int32_t> order;
  auto run_task = [&](int32_t task, int) { order.push_back(task); };
  EXPECT_TRUE(SerialExecutor().Run(graph, TaskFunction(run_task), nullptr).ok());
  EXPECT_EQ(order, graph.order);
}

TEST(ShuffledExecutor, ShufflesByItsSeed) {
  const TaskGraph graph = FlatGraph(50, 1);
  auto order_of = [&](uint64_t seed) {
    std::vector<int32_t> order;
    auto run_task = [&](int32_t task, int) { order.push_back(task); };
    EXPECT_TRUE(test::ShuffledExecutor(seed).Run(graph, TaskFunction(run_task), nullptr).ok());
    return order;
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
}

TEST(FlowExecutor, RunsATinyGraphOnTheCaller) {
  FlowExecutor executor(Nodes({4}));
  const std::thread::id caller = std::this_thread::get_id();
  for (const TaskGraph& graph : {FlatGraph(1, 4), FlatGraph(30, 1)}) {
    StateMemory state(graph);
    int on_caller = 0;
    auto run_task = [&](int32_t, int worker) {
      if (worker == 0 && std::this_thread::get_id() == caller) ++on_caller;
    };
    EXPECT_TRUE(executor.Run(graph, TaskFunction(run_task), state.get()).ok());
    EXPECT_EQ(on_caller, graph.task_count);
  }
}

TEST(FlowExecutor, UsesItsThreadsAtOnce) {
  FlowExecutor executor(Nodes({4}));
  const TaskGraph graph = FlatGraph(4, 4);
  StateMemory state(graph);
  // Each task waits for the three others, which works only if all four run at once.
  std::atomic<int> inside{0};
  auto run_task = [&](int32_t, int) {
    ++inside;
    while (inside.load() < 4) std::this_thread::yield();
  };
  EXPECT_TRUE(executor.Run(graph, TaskFunction(run_task), state.get()).ok());
  EXPECT_EQ(inside.load(), 4);
}

TEST(FlowExecutor, WakesIdleWorkersForTasksFreedLate) {
  FlowExecutor executor(Nodes({2, 2}));
  TaskGraph graph = FlatGraph(5, 4);
  graph.range_node = {0, 0, 1, 1};
  AddEdges(graph, {{0, 1}, {0, 2}, {0, 3}, {0, 4}});
  StateMemory state(graph);
  for (int run = 0; run < 10; ++run) {
    std::atomic<int> inside{0};
    auto run_task = [&](int32_t task, int) {
      if (task == 0) {
        // During the sleep, the other workers claim the tasks that wait for this one, and leave.
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return;
      }
      ++inside;
      while (inside.load() < 4) std::this_thread::yield();
    };
    EXPECT_TRUE(executor.Run(graph, TaskFunction(run_task), state.get()).ok());
    EXPECT_EQ(inside.load(), 4);
  }
}

}  // namespace
}  // namespace fa::core
