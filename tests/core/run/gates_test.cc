// Tasks that wait for gates. A hang ends the program by a signal.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/run/flow_executor.h"
#include "core/run/random_graph.h"
#include "core/run/serial_executor.h"
#include "support/execution/thread_executor.h"

namespace fa::core {
namespace {

using test::AddEdges;
using test::FlatGraph;
using test::RandomGraph;
using test::StateMemory;

constexpr unsigned kSecondsToDeadlock = 300;

/// Adds gates, each given as the list of tasks that wait for it.
void AddGates(TaskGraph& graph, const std::vector<std::vector<int32_t>>& gates) {
  const auto tasks = static_cast<size_t>(graph.task_count);
  graph.predecessor_count.resize(tasks, 0);
  graph.successor_begin.resize(tasks + 1, 0);
  graph.gate_begin = {0};
  for (const std::vector<int32_t>& gate : gates) {
    for (const int32_t task : gate) {
      graph.gate_tasks.push_back(task);
      ++graph.predecessor_count[static_cast<size_t>(task)];
    }
    graph.gate_begin.push_back(std::ssize(graph.gate_tasks));
  }
}

/// Gates whose poll and is_done are functions of the test.
class Gates final : public ArrivalGates {
 public:
  std::function<Status(GateOpener&)> poll;
  std::function<bool()> is_done;
  int polls = 0;

  Status Poll(GateOpener& opener) override {
    ++polls;
    return poll(opener);
  }
  [[nodiscard]] bool done() const override { return is_done(); }
};

std::vector<FlowExecutor::Node> Nodes(std::initializer_list<int> workers) {
  std::vector<FlowExecutor::Node> nodes;
  for (const int n : workers) nodes.push_back({.workers = n});
  return nodes;
}

struct ExecutorCase {
  std::string name;
  std::unique_ptr<Executor> (*make)();
};

class GatesTest : public testing::TestWithParam<ExecutorCase> {
 protected:
  GatesTest() { alarm(kSecondsToDeadlock); }
  ~GatesTest() override { alarm(0); }

  std::unique_ptr<Executor> executor_ = GetParam().make();
};

// `arrived` is not atomic: if an open gate did not order its tasks, ThreadSanitizer would report a race.
TEST_P(GatesTest, RunTheirTasksOnceAfterTheyOpenInAnyOrder) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    TaskGraph graph = seed % 3 == 0 ? FlatGraph(80, 4) : RandomGraph(seed, 1 + static_cast<int32_t>(seed * 7), 4, 2);
    std::vector<std::vector<int32_t>> waiting(1 + seed % 20);
    std::vector<std::vector<int32_t>> gates_of(static_cast<size_t>(graph.task_count));
    for (size_t gate = 0; gate < waiting.size(); ++gate) {
      for (int32_t task = 0; task < graph.task_count; ++task) {
        if (random() % 5 != 0) continue;
        waiting[gate].push_back(task);
        gates_of[static_cast<size_t>(task)].push_back(static_cast<int32_t>(gate));
      }
    }
    AddGates(graph, waiting);
    graph.earliest_first = graph.order.empty() && seed % 2 == 0;
    std::vector<int32_t> order(waiting.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);

    std::vector<int> arrived(waiting.size(), 0);
    std::vector<std::atomic<int>> runs(static_cast<size_t>(graph.task_count));
    std::atomic<int> faults{0};
    auto run_task = [&](int32_t task, int) {
      for (const int32_t gate : gates_of[static_cast<size_t>(task)]) {
        if (arrived[static_cast<size_t>(gate)] != 1) ++faults;
      }
      ++runs[static_cast<size_t>(task)];
    };
    // The gates open all at the first poll before any task, or one by one, or several at a time with polls between that
    // open none.
    const size_t at_once = seed % 4 == 0 ? order.size() : 1 + seed % 3;
    size_t opened = 0;
    Gates gates;
    gates.poll = [&](GateOpener& opener) {
      if (seed % 4 == 3 && gates.polls % 3 != 0) return Status::Ok();
      for (size_t n = 0; n < at_once && opened < order.size(); ++n) {
        const int32_t gate = order[opened++];
        arrived[static_cast<size_t>(gate)] = 1;
        opener.Open(gate);
      }
      return Status::Ok();
    };
    gates.is_done = [&] { return opened == order.size(); };
    const StateMemory state(graph);
    const Status status = executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(faults.load(), 0);
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(GatesTest, AMessageThatFailsEndsTheRunWithItsStatus) {
  for (int opens = 0; opens <= 3; ++opens) {
    TaskGraph graph = FlatGraph(40, 4);
    AddEdges(graph, {{20, 21}});
    AddGates(graph, {{3, 10}, {11}, {12, 20}, {13}});
    const StateMemory state(graph);
    std::vector<std::atomic<int>> runs(40);
    std::atomic<int> all_runs{0};
    auto run_task = [&](int32_t task, int) {
      ++runs[static_cast<size_t>(task)];
      ++all_runs;
    };
    const int tasks_behind[] = {2, 1, 3, 1};
    const int can_run = 40 - std::accumulate(tasks_behind + opens, tasks_behind + 4, 0);
    Gates gates;
    gates.poll = [&](GateOpener& opener) {
      if (gates.polls <= opens) {
        opener.Open(gates.polls - 1);
        return Status::Ok();
      }
      return all_runs.load() < can_run ? Status::Ok() : Status::Internal("rank 3 has left");
    };
    gates.is_done = [] { return false; };
    const Status status = executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates);
    EXPECT_EQ(status.message(), "internal error: rank 3 has left");
    EXPECT_EQ(all_runs.load(), can_run);
    EXPECT_EQ(runs[13].load(), 0) << opens;
    for (const int task : {12, 20, 21}) EXPECT_EQ(runs[static_cast<size_t>(task)].load(), opens == 3 ? 1 : 0) << opens;
  }
}

TEST_P(GatesTest, ATaskThatFailsEndsTheRunWhileGatesAreClosed) {
  TaskGraph graph = FlatGraph(40, 4);
  AddGates(graph, {{0, 10, 39}});
  const StateMemory state(graph);
  std::atomic<int> behind{0};
  auto run_task = [&](int32_t task, int) {
    if (task == 0 || task == 10 || task == 39) ++behind;
    if (task == 25) throw std::bad_alloc();
  };
  Gates gates;
  gates.poll = [](GateOpener&) { return Status::Ok(); };
  gates.is_done = [] { return false; };
  const Status status = executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(behind.load(), 0);
}

TEST_P(GatesTest, AnExceptionOfAPollIsAFailure) {
  TaskGraph graph = FlatGraph(8, 4);
  AddGates(graph, {{0, 7}});
  const StateMemory state(graph);
  auto run_task = [](int32_t, int) {};
  Gates gates;
  gates.poll = [](GateOpener&) -> Status { throw std::runtime_error("no network"); };
  gates.is_done = [] { return false; };
  const Status status = executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates);
  EXPECT_EQ(status.message(), "internal error: no network");
}

TEST_P(GatesTest, AGateThatStaysClosedIsAnError) {
  TaskGraph graph = FlatGraph(8, 4);
  AddGates(graph, {{0, 7}, {}});
  const StateMemory state(graph);
  std::atomic<int> runs{0};
  auto run_task = [&](int32_t, int) { ++runs; };
  Gates gates;
  gates.poll = [](GateOpener&) { return Status::Ok(); };
  gates.is_done = [] { return true; };
  EXPECT_EQ(executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates).code(), StatusCode::kInternal);
  EXPECT_EQ(runs.load(), 6);
}

// The results of one round's tasks are sent while other tasks run, and the answer opens the next gate.
TEST_P(GatesTest, PollsUntilWhatTasksMakeHasBeenSent) {
  constexpr int kRounds = 30, kTasks = 5;
  TaskGraph graph = FlatGraph(kRounds * kTasks, 3);
  std::vector<std::vector<int32_t>> waiting(kRounds);
  for (int32_t task = 0; task < kRounds * kTasks; ++task) waiting[static_cast<size_t>(task / kTasks)].push_back(task);
  AddGates(graph, waiting);
  const StateMemory state(graph);
  std::vector<int64_t> made(kRounds * kTasks, 0);
  std::vector<std::atomic<int>> left(kRounds);
  for (std::atomic<int>& count : left) count = kTasks;
  int64_t message = 1;
  auto run_task = [&](int32_t task, int) {
    made[static_cast<size_t>(task)] = message + task;
    left[static_cast<size_t>(task / kTasks)].fetch_sub(1, std::memory_order_acq_rel);
  };
  int round = -1;
  bool sent_all = false;
  Gates gates;
  gates.poll = [&](GateOpener& opener) {
    if (sent_all) return Status::Ok();
    if (round >= 0) {
      if (left[static_cast<size_t>(round)].load(std::memory_order_acquire) > 0) return Status::Ok();
      for (int task = 0; task < kTasks; ++task) message += made[static_cast<size_t>(round * kTasks + task)] % 7;
    }
    if (++round == kRounds) {
      sent_all = true;
    } else {
      opener.Open(round);
    }
    return Status::Ok();
  };
  gates.is_done = [&] { return sent_all; };
  EXPECT_TRUE(executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates).ok());
  EXPECT_EQ(round, kRounds);
}

// One task is ready at a time, so the caller often finds none. A task that runs on another thread ends when the caller
// has polled kPolls times meanwhile.
TEST_P(GatesTest, PollsUntilTheLastTaskHasRunThoughNothingHasToBePolledFor) {
  constexpr int kTasks = 20, kPolls = 20;
  for (int run = 0; run < 3; ++run) {
    TaskGraph graph = FlatGraph(kTasks, 3);
    std::vector<std::pair<int32_t, int32_t>> chain;
    for (int32_t task = 1; task < kTasks; ++task) chain.emplace_back(task - 1, task);
    AddEdges(graph, chain);
    const StateMemory state(graph);
    std::atomic<int> polls{0}, given_up{0};
    const std::thread::id caller = std::this_thread::get_id();
    auto run_task = [&](int32_t /*task*/, int) {
      if (std::this_thread::get_id() == caller || given_up.load() > 0) return;
      const int before = polls.load();
      const auto start = std::chrono::steady_clock::now();
      while (polls.load() < before + kPolls) {
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
          ++given_up;
          return;
        }
        std::this_thread::yield();
      }
    };
    Gates gates;
    gates.poll = [&](GateOpener&) {
      ++polls;
      return Status::Ok();
    };
    gates.is_done = [] { return true; };
    EXPECT_TRUE(executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates).ok());
    ASSERT_EQ(given_up.load(), 0);
  }
}

// All tasks wait for the gate, so all have been claimed before it opens.
TEST_P(GatesTest, TakeTheEarliestTaskFirstIfAsked) {
  TaskGraph graph = FlatGraph(50, 4);
  graph.range_begin = {0, 50};  // one worker
  graph.earliest_first = true;
  std::vector<int32_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(7));
  AddGates(graph, {{all.begin(), all.begin() + 20}, {all.begin() + 20, all.end()}});
  const StateMemory state(graph);
  std::vector<int32_t> ran;
  std::mutex mutex;
  auto run_task = [&](int32_t task, int) {
    const std::lock_guard lock(mutex);
    ran.push_back(task);
  };
  Gates gates;
  gates.poll = [&](GateOpener& opener) {
    if (gates.polls == 3) {
      opener.Open(1);
      opener.Open(0);
    }
    return Status::Ok();
  };
  gates.is_done = [&] { return gates.polls >= 3; };
  EXPECT_TRUE(executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates).ok());
  EXPECT_EQ(ran.size(), 50u);
  if (executor_->workers() == 1) {
    EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
  }
}

TEST_P(GatesTest, GraphsOfNoTaskAndOfOne) {
  for (const int32_t tasks : {0, 1}) {
    TaskGraph graph = FlatGraph(tasks, 4);
    AddGates(graph, {tasks == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{0}});
    const StateMemory state(graph);
    int runs = 0;
    auto run_task = [&](int32_t, int) { ++runs; };
    bool opened = false;
    Gates gates;
    gates.poll = [&](GateOpener& opener) {
      if (gates.polls == 10) {
        opened = true;
        opener.Open(0);
      }
      return Status::Ok();
    };
    gates.is_done = [&] { return opened; };
    EXPECT_TRUE(executor_->RunWithGates(graph, TaskFunction(run_task), state.get(), gates).ok());
    EXPECT_EQ(runs, tasks);
  }
}

template <int kWorkers>
std::unique_ptr<Executor> MakeFlow() {
  return std::make_unique<FlowExecutor>(Nodes({kWorkers}));
}
std::unique_ptr<Executor> MakeTwoNodes() { return std::make_unique<FlowExecutor>(Nodes({3, 2})); }
template <int kWorkers>
std::unique_ptr<Executor> MakeThreads() {
  return std::make_unique<test::ThreadExecutor>(kWorkers);
}

INSTANTIATE_TEST_SUITE_P(
    All, GatesTest,
    testing::Values(ExecutorCase{"Serial", [] { return std::unique_ptr<Executor>(new SerialExecutor); }},
                    ExecutorCase{"Flow1", MakeFlow<1>}, ExecutorCase{"Flow2", MakeFlow<2>},
                    ExecutorCase{"Flow4", MakeFlow<4>}, ExecutorCase{"FlowOnTwoNodes", MakeTwoNodes},
                    ExecutorCase{"Threads3", MakeThreads<3>}),
    [](const auto& info) { return info.param.name; });

// Nothing can run before the gate opens, so every worker has left by then.
TEST(FlowExecutorGates, WakeEveryWorker) {
  alarm(kSecondsToDeadlock);
  FlowExecutor executor(Nodes({2, 2}));
  TaskGraph graph = FlatGraph(4, 4);
  graph.range_node = {0, 0, 1, 1};
  AddGates(graph, {{0, 1, 2, 3}});
  const StateMemory state(graph);
  for (int run = 0; run < 10; ++run) {
    std::atomic<int> inside{0};
    auto run_task = [&](int32_t, int) {
      ++inside;
      while (inside.load() < 4) std::this_thread::yield();
    };
    bool opened = false;
    Gates gates;
    gates.poll = [&](GateOpener& opener) {
      if (opened) return Status::Ok();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      opened = true;
      opener.Open(0);
      return Status::Ok();
    };
    gates.is_done = [&] { return opened; };
    EXPECT_TRUE(executor.RunWithGates(graph, TaskFunction(run_task), state.get(), gates).ok());
    EXPECT_EQ(inside.load(), 4);
  }
  alarm(0);
}

}  // namespace
}  // namespace fa::core
