// Tests runs for which oneTBB has no threads: the program's own tasks keep all threads busy, global_control allows
// none, or the process is a forked child. The caller must finish such runs alone. After a deadlock a signal ends the
// program, so that the suite does not hang. ThreadSanitizer does not run these tests, because it does not see forks and
// handovers inside oneTBB.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/context_calls.h"
#include "core/run/count_faults.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

constexpr unsigned kSecondsToDeadlock = 300;
constexpr int kWorkers = 4;

Topology TwoNodes() { return *Topology::FromSynthetic("numa:2 core:2 pu:1"); }

// Runs a graph with tasks on both nodes. The graph has random edges if the seed is even, and no edges if it is odd.
int FaultsOfOneCall(Context::Impl& context, uint64_t seed) {
  TaskGraph graph = seed % 2 == 0 ? test::RandomGraph(seed, 60, kWorkers, 2) : test::FlatGraph(60, kWorkers);
  if (graph.range_node.empty()) graph.range_node = {0, 0, 1, 1};
  return test::CountFaults(*context.BorrowExecutor(), graph);
}

int FaultsOfCalls(Context::Impl& context, uint64_t calls) {
  int faults = 0;
  for (uint64_t call = 0; call < calls; ++call) faults += FaultsOfOneCall(context, call);
  return faults;
}

class StarvedExecutor : public testing::Test {
 protected:
  StarvedExecutor() { alarm(kSecondsToDeadlock); }
  ~StarvedExecutor() override { alarm(0); }

  Context::Impl context_{{.workers = kWorkers}, TwoNodes()};
};

TEST_F(StarvedExecutor, HasTwoArenas) { EXPECT_EQ(context_.nodes(), 2); }

TEST_F(StarvedExecutor, FinishesWhereTheProgramsOwnTasksHoldEveryThread) {
  const tbb::global_control two_threads(tbb::global_control::max_allowed_parallelism, 2);
  tbb::task_arena programs(2);
  std::atomic<int> inside{0}, faults{0};
  programs.execute([&] {
    tbb::parallel_for(
        0, 2,
        [&](int task) {
          ++inside;
          while (inside.load() < 2) std::this_thread::yield();  // both threads of oneTBB are in this loop
          faults += FaultsOfCalls(context_, 40 + static_cast<uint64_t>(task));
        },
        tbb::simple_partitioner{});
  });
  EXPECT_EQ(inside.load(), 2);
  EXPECT_EQ(faults.load(), 0);
}

TEST_F(StarvedExecutor, FinishesWhereNoThreadIsAllowed) {
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  EXPECT_EQ(FaultsOfCalls(context_, 200), 0);
}

TEST_F(StarvedExecutor, FinishesAgainOnceThreadsAreAllowed) {
  {
    const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
    EXPECT_EQ(FaultsOfCalls(context_, 20), 0);
  }
  EXPECT_EQ(FaultsOfCalls(context_, 20), 0);
  // A message that no thread has taken must not keep workers away from later runs.
  EXPECT_TRUE(test::EveryWorkerComes(context_));
}

// oneTBB limits the threads of a process by the smallest max_allowed_parallelism that any global_control object sets.
TEST(Allowance, OfASmallContextDoesNotBindALargeOne) {
  alarm(kSecondsToDeadlock);
  const Topology machine = test::FourCores();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Context::Impl small({.workers = cores + 1}, machine), large({.workers = cores + 4}, machine);
  EXPECT_TRUE(test::EveryWorkerComes(small));
  EXPECT_TRUE(test::EveryWorkerComes(large));
  {
    Context::Impl largest({.workers = cores + 6}, machine);
    EXPECT_TRUE(test::EveryWorkerComes(largest));
  }
  EXPECT_TRUE(test::EveryWorkerComes(small));
  EXPECT_TRUE(test::EveryWorkerComes(large));
  alarm(0);
}

TEST_F(StarvedExecutor, FinishesInAChildThatForkLeftWithoutThreads) {
  ASSERT_EQ(FaultsOfCalls(context_, 20), 0);  // these calls start the threads
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kSecondsToDeadlock);
    const bool own = FaultsOfCalls(context_, 20) == 0;
    Context::Impl fresh({.workers = kWorkers}, TwoNodes());
    _exit(own && FaultsOfCalls(fresh, 20) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// oneTBB never has a thread in this test. Contexts are destroyed while their executors hold messages that no thread has
// taken.
TEST_F(StarvedExecutor, CanBeDestroyedWithUndeliveredMessages) {
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  for (uint64_t round = 0; round < 20; ++round) {
    Context::Impl context({.workers = kWorkers}, TwoNodes());
    EXPECT_EQ(FaultsOfCalls(context, 4), 0);
  }
}

}  // namespace
}  // namespace fa::core
