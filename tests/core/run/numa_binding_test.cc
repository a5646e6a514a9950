// Tests an executor on two NUMA nodes, which are made from this machine's hardware threads. Each task runs on its node.
// After a run, the caller may use the same hardware threads as before.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/context/context_impl.h"
#include "core/machine/affinity.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

constexpr int kWorkers = 4, kTasks = 200;

/// Returns a machine of two nodes. The first hardware thread is one node, and all others are the other node. A single
/// hardware thread is in both nodes.
Topology TwoNodesOf(const std::vector<int>& cpus) {
  Topology machine = *Topology::FromSynthetic("numa:2 core:2 pu:1");
  machine.nodes[0].cpus = {cpus.front()};
  machine.nodes[1].cpus = cpus.size() > 1 ? std::vector<int>(cpus.begin() + 1, cpus.end()) : cpus;
  return machine;
}

TEST(NumaBinding, RunsEachTaskOnTheNodeOfItsWorker) {
  const std::vector<int> cpus = AllowedCpus();
  const Topology machine = TwoNodesOf(cpus);
  Context::Impl context({.workers = kWorkers}, machine);
  ASSERT_EQ(context.nodes(), 2);
  const TaskGraph graph = test::RandomGraph(7, kTasks, kWorkers, 2);
  const test::StateMemory state(graph);
  std::atomic<int> done{0}, elsewhere{0};
  auto where = [&](int32_t, int worker) {
    const auto node = static_cast<size_t>(NodeOfWorker(worker, kWorkers, 2));
    const std::vector<int>& own = machine.nodes[node].cpus;
    if (!std::binary_search(own.begin(), own.end(), sched_getcpu())) ++elsewhere;
    ++done;
    std::this_thread::yield();  // lets the other node's threads take tasks on a busy machine
  };
  for (int run = 0; run < 20; ++run) {
    ASSERT_TRUE(context.BorrowExecutor()->Run(graph, TaskFunction(where), state.get()).ok());
  }
  EXPECT_EQ(done.load(), 20 * kTasks);
  EXPECT_EQ(elsewhere.load(), 0);
  EXPECT_EQ(AllowedCpus(), cpus) << "the caller's own";
}

TEST(BoundThread, GivesBackWhatTheThreadHad) {
  const std::vector<int> cpus = AllowedCpus();
  {
    const BoundThread outer(std::span<const int>(cpus).first(1));
    EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.front()});
    {
      const BoundThread inner(std::span<const int>(cpus).last(1));
      EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.back()});
    }
    EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.front()});
  }
  EXPECT_EQ(AllowedCpus(), cpus);
}

TEST(BoundThread, ChangesNothingWhereTheSystemRefuses) {
  const std::vector<int> cpus = AllowedCpus();
  for (const int lacking : {8191, 1 << 20}) {
    const BoundThread bound(std::span(&lacking, 1));
    EXPECT_EQ(AllowedCpus(), cpus);
  }
  const BoundThread none(std::span<const int>{});
  EXPECT_EQ(AllowedCpus(), cpus);
}

}  // namespace
}  // namespace fa::core
