// This test is built with -fopenmp. Some calls come from OpenMP's parallel regions, whose threads oneTBB does not know.
// Other calls run on OpenMP's threads.

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/context_calls.h"
#include "core/run/flow_executor.h"
#include "core/run/openmp_team.h"
#include "fa/context.h"
#include "support/execution/emulator.h"

namespace fa::core {
namespace {

constexpr int kThreads = 3;
constexpr char kRuntime[] = "libgomp.so.1";

std::vector<FlowExecutor::Node> OneNode(int workers) { return {{.workers = workers}}; }

TEST(OpenMp, EveryThreadOfARegionMayCall) {
  Context::Impl context({.workers = 3}, test::FourCores());
  int faults = 0, threads = 0;
#pragma omp parallel for num_threads(4) schedule(static) reduction(+ : faults) reduction(max : threads)
  for (int call = 0; call < 80; ++call) {
    threads = omp_get_num_threads();
    faults += test::FaultsOfOneCall(context, static_cast<uint64_t>(call));
  }
  EXPECT_EQ(faults, 0);
  EXPECT_EQ(threads, 4);  // the region ran on four threads
}

/// Tests calls when OpenMP has as many threads as the executor, and the library shares these threads.
class SharedOpenMp : public testing::Test {
 protected:
  void SetUp() override {
    omp_set_num_threads(kThreads);
    const Result<bool> shared = ShareOpenMpThreads(kRuntime);
    ASSERT_TRUE(shared.ok()) << shared.status().message();
    ASSERT_TRUE(*shared);
  }
  void TearDown() override { EXPECT_TRUE(ShareOpenMpThreads("").ok()); }

  /// Runs one task per worker; the tasks wait for one another. Returns how many of them ran inside a parallel region of
  /// OpenMP.
  int TasksInARegion(int workers = kThreads) {
    FlowExecutor executor(OneNode(workers));
    const TaskGraph graph = test::FlatGraph(workers, workers);
    const test::StateMemory state(graph);
    std::atomic<int> inside{0}, in_a_region{0};
    auto task = [&](int32_t, int) {
      in_a_region += omp_in_parallel() != 0 ? 1 : 0;
      ++inside;
      while (all_wait_ && inside.load() < workers) std::this_thread::yield();
    };
    const Status status = executor.Run(graph, TaskFunction(task), state.get());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(inside.load(), workers);
    return in_a_region.load();
  }

  bool all_wait_ = true;
};

TEST_F(SharedOpenMp, TasksRunOnItsThreads) { EXPECT_EQ(TasksInARegion(), kThreads); }

/// Runs graphs on an executor that it wraps. Counts the tasks that ran inside a parallel region of OpenMP.
class CountingRegions final : public Executor {
 public:
  explicit CountingRegions(Executor& executor) : executor_(executor) {}
  Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) override {
    auto counted = [&](int32_t task, int worker) {
      in_a_region += omp_in_parallel() != 0 ? 1 : 0;
      run_task(task, worker);
    };
    return executor_.Run(graph, TaskFunction(counted), state);
  }
  [[nodiscard]] int workers() const override { return executor_.workers(); }

  std::atomic<int64_t> in_a_region{0};

 private:
  Executor& executor_;
};

TEST_F(SharedOpenMp, GraphsRunAsOnEveryExecutor) {
  FlowExecutor flow(OneNode(kThreads));
  CountingRegions executor(flow);
  int64_t tasks = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    // Sharing begins again before each graph, so that earlier runs whose threads came late do not matter.
    ASSERT_TRUE(ShareOpenMpThreads("").ok());
    ASSERT_TRUE(*ShareOpenMpThreads(kRuntime));
    const TaskGraph graph =
        test::RandomGraph(seed, 2 + static_cast<int32_t>(seed * seed % 400), 2 + static_cast<int>(seed % 5));
    ASSERT_EQ(test::CountFaults(executor, graph), 0) << "seed " << seed;
    tasks += graph.task_count;
  }
  EXPECT_EQ(executor.in_a_region.load(), tasks);
}

/// Arrivals with one input. The input arrives at the second poll after `first` has become true.
class ArrivesAfter final : public Arrivals {
 public:
  explicit ArrivesAfter(const std::atomic<bool>& first) : first_(first) {}
  Status Poll(OnArrival arrived) override {
    polled_elsewhere += omp_get_thread_num() != 0 ? 1 : 0;
    if (!done_ && first_.load() && ++polls_ == 2) {
      arrived(0);
      done_ = true;
    }
    return Status::Ok();
  }
  [[nodiscard]] bool done() const override { return done_; }

  int polled_elsewhere = 0;

 private:
  const std::atomic<bool>& first_;
  int polls_ = 0;
  bool done_ = false;
};

TEST_F(SharedOpenMp, TasksThatWaitForInputsRunOnAllItsThreads) {
  // Task 0 runs at once. Tasks 1, 2 and 3 wait for the input and then for each other. So no worker may leave before
  // them.
  TaskGraph graph = test::FlatGraph(1 + kThreads, kThreads);
  graph.predecessor_count = {0, 1, 1, 1};
  graph.successor_begin = {0, 0, 0, 0, 0, kThreads};
  graph.successors = {1, 2, 3};
  graph.arrivals = 1;
  const test::StateMemory state(graph);
  FlowExecutor executor(OneNode(kThreads));
  for (int run = 0; run < 20; ++run) {
    ASSERT_TRUE(ShareOpenMpThreads("").ok());
    ASSERT_TRUE(*ShareOpenMpThreads(kRuntime));
    std::atomic<bool> first{false};
    std::atomic<int> inside{0}, in_a_region{0};
    auto task = [&](int32_t id, int) {
      in_a_region += omp_in_parallel() != 0 ? 1 : 0;
      if (id == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        first = true;
        return;
      }
      ++inside;
      while (inside.load() < kThreads) std::this_thread::yield();
    };
    ArrivesAfter arrivals(first);
    const Status status = executor.RunWithArrivals(graph, TaskFunction(task), state.get(), arrivals);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(inside.load(), kThreads);
    EXPECT_EQ(in_a_region.load(), 1 + kThreads);
    EXPECT_EQ(arrivals.polled_elsewhere, 0);
  }
}

TEST_F(SharedOpenMp, AWorkerWithoutATaskWaitsForThoseThatOthersFree) {
  // One task frees two tasks that wait for each other, so the second worker must not have left.
  FlowExecutor executor(OneNode(kThreads));
  TaskGraph graph = test::FlatGraph(3, kThreads);
  test::AddEdges(graph, {{0, 1}, {0, 2}});
  const test::StateMemory state(graph);
  std::atomic<int> inside{0};
  auto task = [&](int32_t id, int) {
    if (id == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (id == 0) return;
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
  };
  EXPECT_TRUE(executor.Run(graph, TaskFunction(task), state.get()).ok());
}

/// An exception that notes when the run asks for its text. By then the run has recorded the failure.
class NotedFailure : public std::exception {
 public:
  explicit NotedFailure(std::atomic<bool>& noted) : noted_(noted) {}
  [[nodiscard]] const char* what() const noexcept override {
    noted_ = true;
    return "the fiftieth";
  }

 private:
  std::atomic<bool>& noted_;
};

TEST_F(SharedOpenMp, AnExceptionOfATaskIsTheStatusAndTheNextRunIsRight) {
  FlowExecutor executor(OneNode(kThreads));
  const TaskGraph graph = test::RandomGraph(7, 200, kThreads);
  const test::StateMemory state(graph);
  std::atomic<int> begun{0};
  std::atomic<bool> noted{false};
  auto task = [&](int32_t, int) {
    const int number = ++begun;
    if (number == 50) throw NotedFailure(noted);
    // Other tasks wait until the run has recorded the exception. So each other thread begins at most one more task.
    while (number > 50 && !noted) std::this_thread::yield();
  };
  const Status status = executor.Run(graph, TaskFunction(task), state.get());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("the fiftieth"), std::string::npos) << status.message();
  EXPECT_LT(begun.load(), 50 + kThreads);
  EXPECT_EQ(test::CountFaults(executor, graph), 0);
}

TEST_F(SharedOpenMp, AnotherNumberOfThreadsRunsOnTheLibrarysOwn) {
  EXPECT_EQ(TasksInARegion(2), 0);
  omp_set_num_threads(2);
  EXPECT_EQ(TasksInARegion(), 0);
  EXPECT_EQ(TasksInARegion(2), 2);
}

TEST_F(SharedOpenMp, CallsFromARegionAndAllAtOnceAreRight) {
  Context::Impl context({.workers = kThreads}, test::FourCores());
  int faults = 0;
#pragma omp parallel for num_threads(4) schedule(static) reduction(+ : faults)
  for (int call = 0; call < 40; ++call) faults += test::FaultsOfOneCall(context, static_cast<uint64_t>(call));
  EXPECT_EQ(faults, 0);

  std::atomic<int> faults_of_threads{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      omp_set_num_threads(kThreads);
      for (int call = 0; call < 30; ++call) {
        faults_of_threads += test::FaultsOfOneCall(context, static_cast<uint64_t>(100 * caller + call));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(faults_of_threads.load(), 0);
}

TEST_F(SharedOpenMp, OneThreadOfTheProgramHasTheTeamUntilItEnds) {
  const auto tasks_in_a_region = [&] {
    int tasks = 0;
    std::thread([&] {
      omp_set_num_threads(kThreads);
      tasks = TasksInARegion();
    }).join();
    return tasks;
  };
  EXPECT_EQ(tasks_in_a_region(), kThreads);
  EXPECT_EQ(tasks_in_a_region(), kThreads);  // the team is free again, because the earlier thread has ended
  EXPECT_EQ(TasksInARegion(), kThreads);
  EXPECT_EQ(tasks_in_a_region(), 0);
  EXPECT_EQ(TasksInARegion(), kThreads);
}

TEST_F(SharedOpenMp, AfterThreadsThatCameLateRunsAreOnTheLibrarysOwn) {
  // On one CPU the caller usually runs all tasks before another thread comes. Under an emulator this happens only
  // sometimes.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  constexpr int kRuns = 10000;
  int first = 0, skipped = 0;
  std::thread([&] {
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    }
    // The CPU set holds for this thread and the threads that it starts.
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    omp_set_num_threads(kThreads);
    all_wait_ = false;
    first = TasksInARegion();
    for (int run = 1; run < kRuns && skipped < 2; ++run) skipped += TasksInARegion() == 0 ? 1 : 0;
  }).join();
  // At least the two runs after a run with late threads do not use OpenMP's threads.
  EXPECT_EQ(skipped, 2);
  EXPECT_EQ(first, kThreads);
}

TEST_F(SharedOpenMp, RunsStayOnThreadsThatTheRuntimeBinds) {
  if (test::Emulated()) GTEST_SKIP() << "under an emulator the program does not start itself anew";
  // The runtime reads the variable when the program starts. All threads share one CPU, so they often come late.
  constexpr char kVariable[] = "GOMP_CPU_AFFINITY";
  if (std::getenv(kVariable) == nullptr) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) ++cpu;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv(kVariable, std::to_string(cpu).c_str(), 1);
      unsetenv("GTEST_OUTPUT");
      execl("/proc/self/exe", "openmp_test", "--gtest_filter=SharedOpenMp.RunsStayOnThreadsThatTheRuntimeBinds",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return;
  }
  all_wait_ = false;
  for (int run = 0; run < 2000; ++run) ASSERT_EQ(TasksInARegion(), kThreads) << "run " << run;
}

TEST_F(SharedOpenMp, AForkedChildThatNamesTheRuntimeAgainIsRefused) {
  ASSERT_EQ(TasksInARegion(), kThreads);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    const Result<bool> shared = ShareOpenMpThreads(kRuntime);
    all_wait_ = false;
    _exit(shared.ok() && !*shared && TasksInARegion() == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(SharedOpenMp, AForkedChildDoesNotWaitForThreadsThatItDoesNotHave) {
  ASSERT_EQ(TasksInARegion(), kThreads);  // this starts the threads of the OpenMP runtime
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    all_wait_ = false;
    _exit(TasksInARegion() == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(SharedOpenMp, NothingIsSharedWhereTheRuntimeIsNotLoaded) {
  const Result<bool> absent = ShareOpenMpThreads("libno_such_runtime.so.9");
  ASSERT_TRUE(absent.ok());
  EXPECT_FALSE(*absent);
  EXPECT_EQ(TasksInARegion(), kThreads);  // the runtime that SetUp named is still shared

  const Result<bool> other = ShareOpenMpThreads("libc.so.6");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.status().argument(), "runtime");
  EXPECT_EQ(TasksInARegion(), kThreads);

  ASSERT_TRUE(*ShareOpenMpThreads(""));
  EXPECT_EQ(TasksInARegion(), 0);
}

}  // namespace
}  // namespace fa::core
