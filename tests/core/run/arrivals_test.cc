// Tests tasks that wait for inputs. A hang ends the program by a signal.

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

/// Adds one input to the graph per element of `inputs`. The element lists the tasks that wait for the input.
void AddInputs(TaskGraph& graph, const std::vector<std::vector<int32_t>>& inputs) {
  const auto tasks = static_cast<size_t>(graph.task_count);
  graph.predecessor_count.resize(tasks, 0);
  graph.successor_begin.resize(tasks + 1, 0);
  for (const std::vector<int32_t>& input : inputs) {
    for (const int32_t task : input) {
      graph.successors.push_back(task);
      ++graph.predecessor_count[static_cast<size_t>(task)];
    }
    graph.successor_begin.push_back(std::ssize(graph.successors));
    ++graph.arrivals;
  }
}

/// Arrivals whose poll and is_done are functions of the test.
class Inputs final : public Arrivals {
 public:
  std::function<Status(OnArrival)> poll;
  std::function<bool()> is_done;
  int polls = 0;

  Status Poll(OnArrival arrived) override {
    ++polls;
    return poll(arrived);
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

class ArrivalsTest : public testing::TestWithParam<ExecutorCase> {
 protected:
  ArrivalsTest() { alarm(kSecondsToDeadlock); }
  ~ArrivalsTest() override { alarm(0); }

  std::unique_ptr<Executor> executor_ = GetParam().make();
};

// The tests' `has_arrived` is a plain bool. If tasks ran before their input had arrived, ThreadSanitizer would report a
// race.
TEST_P(ArrivalsTest, RunTheirTasksOnceInAnyOrder) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    TaskGraph graph = seed % 3 == 0 ? FlatGraph(80, 4) : RandomGraph(seed, 1 + static_cast<int32_t>(seed * 7), 4, 2);
    std::vector<std::vector<int32_t>> waiting(1 + seed % 20);
    std::vector<std::vector<int32_t>> inputs_of(static_cast<size_t>(graph.task_count));
    for (size_t input = 0; input < waiting.size(); ++input) {
      for (int32_t task = 0; task < graph.task_count; ++task) {
        if (random() % 5 != 0) continue;
        waiting[input].push_back(task);
        inputs_of[static_cast<size_t>(task)].push_back(static_cast<int32_t>(input));
      }
    }
    AddInputs(graph, waiting);
    graph.earliest_first = seed % 2 == 0;
    graph.position.resize(graph.order.size());
    for (size_t place = 0; place < graph.order.size(); ++place) {
      graph.position[static_cast<size_t>(graph.order[place])] = static_cast<int32_t>(place);
    }
    std::vector<int32_t> order(waiting.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);

    std::vector<int> has_arrived(waiting.size(), 0);
    std::vector<std::atomic<int>> runs(static_cast<size_t>(graph.task_count));
    std::atomic<int> faults{0};
    auto run_task = [&](int32_t task, int) {
      for (const int32_t input : inputs_of[static_cast<size_t>(task)]) {
        if (has_arrived[static_cast<size_t>(input)] != 1) ++faults;
      }
      ++runs[static_cast<size_t>(task)];
    };
    // The inputs arrive in one of three ways: all at the first poll, one by one, or several at a time. With some seeds,
    // some polls deliver no input.
    const size_t at_once = seed % 4 == 0 ? order.size() : 1 + seed % 3;
    size_t opened = 0;
    Inputs inputs;
    inputs.poll = [&](OnArrival arrived) {
      if (seed % 4 == 3 && inputs.polls % 3 != 0) return Status::Ok();
      for (size_t n = 0; n < at_once && opened < order.size(); ++n) {
        const int32_t input = order[opened++];
        has_arrived[static_cast<size_t>(input)] = 1;
        arrived(input);
      }
      return Status::Ok();
    };
    inputs.is_done = [&] { return opened == order.size(); };
    const StateMemory state(graph);
    const Status status = executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(faults.load(), 0);
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(ArrivalsTest, AMessageThatFailsEndsTheRunWithItsStatus) {
  for (int opens = 0; opens <= 3; ++opens) {
    TaskGraph graph = FlatGraph(40, 4);
    AddEdges(graph, {{20, 21}});
    AddInputs(graph, {{3, 10}, {11}, {12, 20}, {13}});
    const StateMemory state(graph);
    std::vector<std::atomic<int>> runs(40);
    std::atomic<int> all_runs{0};
    auto run_task = [&](int32_t task, int) {
      ++runs[static_cast<size_t>(task)];
      ++all_runs;
    };
    const int tasks_behind[] = {2, 1, 3, 1};
    const int can_run = 40 - std::accumulate(tasks_behind + opens, tasks_behind + 4, 0);
    Inputs inputs;
    inputs.poll = [&](OnArrival arrived) {
      if (inputs.polls <= opens) {
        arrived(inputs.polls - 1);
        return Status::Ok();
      }
      return all_runs.load() < can_run ? Status::Ok() : Status::Internal("rank 3 has left");
    };
    inputs.is_done = [] { return false; };
    const Status status = executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs);
    EXPECT_EQ(status.message(), "internal error: rank 3 has left");
    EXPECT_EQ(all_runs.load(), can_run);
    EXPECT_EQ(runs[13].load(), 0) << opens;
    for (const int task : {12, 20, 21}) EXPECT_EQ(runs[static_cast<size_t>(task)].load(), opens == 3 ? 1 : 0) << opens;
  }
}

TEST_P(ArrivalsTest, ATaskThatFailsEndsTheRunWhileInputsAreMissing) {
  TaskGraph graph = FlatGraph(40, 4);
  AddInputs(graph, {{0, 10, 39}});
  const StateMemory state(graph);
  std::atomic<int> behind{0};
  auto run_task = [&](int32_t task, int) {
    if (task == 0 || task == 10 || task == 39) ++behind;
    if (task == 25) throw std::bad_alloc();
  };
  Inputs inputs;
  inputs.poll = [](OnArrival) { return Status::Ok(); };
  inputs.is_done = [] { return false; };
  const Status status = executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(behind.load(), 0);
}

TEST_P(ArrivalsTest, AnExceptionOfAPollIsAFailure) {
  TaskGraph graph = FlatGraph(8, 4);
  AddInputs(graph, {{0, 7}});
  const StateMemory state(graph);
  auto run_task = [](int32_t, int) {};
  Inputs inputs;
  inputs.poll = [](OnArrival) -> Status { throw std::runtime_error("no network"); };
  inputs.is_done = [] { return false; };
  const Status status = executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs);
  EXPECT_EQ(status.message(), "internal error: no network");
}

TEST_P(ArrivalsTest, AnInputThatDoesNotArriveIsAnError) {
  TaskGraph graph = FlatGraph(8, 4);
  AddInputs(graph, {{0, 7}, {}});
  const StateMemory state(graph);
  std::atomic<int> runs{0};
  auto run_task = [&](int32_t, int) { ++runs; };
  Inputs inputs;
  inputs.poll = [](OnArrival) { return Status::Ok(); };
  inputs.is_done = [] { return true; };
  EXPECT_EQ(executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).code(),
            StatusCode::kInternal);
  EXPECT_EQ(runs.load(), 6);
}

// A poll stands for sending. When all tasks of a round have run, the poll adds up their results, and delivers the input
// of the next round.
TEST_P(ArrivalsTest, PollsUntilWhatTasksMakeHasBeenSent) {
  constexpr int kRounds = 30, kTasks = 5;
  TaskGraph graph = FlatGraph(kRounds * kTasks, 3);
  std::vector<std::vector<int32_t>> waiting(kRounds);
  for (int32_t task = 0; task < kRounds * kTasks; ++task) waiting[static_cast<size_t>(task / kTasks)].push_back(task);
  AddInputs(graph, waiting);
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
  Inputs inputs;
  inputs.poll = [&](OnArrival arrived) {
    if (sent_all) return Status::Ok();
    if (round >= 0) {
      if (left[static_cast<size_t>(round)].load(std::memory_order_acquire) > 0) return Status::Ok();
      for (int task = 0; task < kTasks; ++task) message += made[static_cast<size_t>(round * kTasks + task)] % 7;
    }
    if (++round == kRounds) {
      sent_all = true;
    } else {
      arrived(round);
    }
    return Status::Ok();
  };
  inputs.is_done = [&] { return sent_all; };
  EXPECT_TRUE(executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).ok());
  EXPECT_EQ(round, kRounds);
}

// Only one task is ready at a time, so the calling thread often finds none. A task on another thread ends only after
// the caller has polled kPolls times.
TEST_P(ArrivalsTest, PollsUntilTheLastTaskHasRunThoughNothingHasToBePolledFor) {
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
    Inputs inputs;
    inputs.poll = [&](OnArrival) {
      ++polls;
      return Status::Ok();
    };
    inputs.is_done = [] { return true; };
    EXPECT_TRUE(executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).ok());
    ASSERT_EQ(given_up.load(), 0);
  }
}

// All tasks wait for an input. So workers have claimed all of them before the first input arrives.
TEST_P(ArrivalsTest, TakeTheEarliestTaskFirstIfAsked) {
  TaskGraph graph = FlatGraph(50, 4);
  graph.range_begin = {0, 50};  // one worker has all tasks
  graph.earliest_first = true;
  std::vector<int32_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(7));
  AddInputs(graph, {{all.begin(), all.begin() + 20}, {all.begin() + 20, all.end()}});
  const StateMemory state(graph);
  std::vector<int32_t> ran;
  std::mutex mutex;
  auto run_task = [&](int32_t task, int) {
    const std::lock_guard lock(mutex);
    ran.push_back(task);
  };
  Inputs inputs;
  inputs.poll = [&](OnArrival arrived) {
    if (inputs.polls == 3) {
      arrived(1);
      arrived(0);
    }
    return Status::Ok();
  };
  inputs.is_done = [&] { return inputs.polls >= 3; };
  EXPECT_TRUE(executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).ok());
  EXPECT_EQ(ran.size(), 50u);
  if (executor_->workers() == 1) {
    EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
  }
}

TEST_P(ArrivalsTest, GraphsOfNoTaskAndOfOne) {
  for (const int32_t tasks : {0, 1}) {
    TaskGraph graph = FlatGraph(tasks, 4);
    AddInputs(graph, {tasks == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{0}});
    const StateMemory state(graph);
    int runs = 0;
    auto run_task = [&](int32_t, int) { ++runs; };
    bool opened = false;
    Inputs inputs;
    inputs.poll = [&](OnArrival arrived) {
      if (inputs.polls == 10) {
        opened = true;
        arrived(0);
      }
      return Status::Ok();
    };
    inputs.is_done = [&] { return opened; };
    EXPECT_TRUE(executor_->RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).ok());
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
    All, ArrivalsTest,
    testing::Values(ExecutorCase{"Serial", [] { return std::unique_ptr<Executor>(new SerialExecutor); }},
                    ExecutorCase{"Flow1", MakeFlow<1>}, ExecutorCase{"Flow2", MakeFlow<2>},
                    ExecutorCase{"Flow4", MakeFlow<4>}, ExecutorCase{"FlowOnTwoNodes", MakeTwoNodes},
                    ExecutorCase{"Threads3", MakeThreads<3>}),
    [](const auto& info) { return info.param.name; });

// No task can run before the input arrives, so every worker has left by then.
TEST(FlowExecutorArrivals, WakeEveryWorker) {
  alarm(kSecondsToDeadlock);
  FlowExecutor executor(Nodes({2, 2}));
  TaskGraph graph = FlatGraph(4, 4);
  graph.range_node = {0, 0, 1, 1};
  AddInputs(graph, {{0, 1, 2, 3}});
  const StateMemory state(graph);
  for (int run = 0; run < 10; ++run) {
    std::atomic<int> inside{0};
    auto run_task = [&](int32_t, int) {
      ++inside;
      while (inside.load() < 4) std::this_thread::yield();
    };
    bool opened = false;
    Inputs inputs;
    inputs.poll = [&](OnArrival arrived) {
      if (opened) return Status::Ok();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      opened = true;
      arrived(0);
      return Status::Ok();
    };
    inputs.is_done = [&] { return opened; };
    EXPECT_TRUE(executor.RunWithArrivals(graph, TaskFunction(run_task), state.get(), inputs).ok());
    EXPECT_EQ(inside.load(), 4);
  }
  alarm(0);
}

}  // namespace
}  // namespace fa::core
