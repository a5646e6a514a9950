// Tests calls from several threads, from inside the library's own tasks, and through two contexts.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/context_calls.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

TEST(ConcurrentCalls, SeveralCallersShareAContext) {
  Context::Impl context({.workers = 3}, test::FourCores());
  std::atomic<int> faults{0};
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint64_t call = 0; call < 50; ++call) faults += test::FaultsOfOneCall(context, 1000 * caller + call);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(faults.load(), 0);
}

TEST(ConcurrentCalls, TwoContextsRunSideBySide) {
  Context::Impl small({.workers = 2}, test::FourCores());
  Context::Impl large({.workers = 8}, *Topology::FromSynthetic("numa:2 core:4 pu:1"));
  EXPECT_EQ(large.nodes(), 2);
  std::atomic<int> faults{0};
  std::thread other([&] {
    for (uint64_t call = 0; call < 100; ++call) faults += test::FaultsOfOneCall(large, call);
  });
  for (uint64_t call = 0; call < 100; ++call) faults += test::FaultsOfOneCall(small, call);
  other.join();
  EXPECT_EQ(faults.load(), 0);
}

TEST(ConcurrentCalls, ContextsComeAndGo) {
  for (uint64_t round = 0; round < 50; ++round) {
    Context::Impl context({.workers = 3}, test::FourCores());
    EXPECT_EQ(test::FaultsOfOneCall(context, round), 0);
  }
}

TEST(ConcurrentCalls, ATaskMayCallTheLibrary) {
  Context::Impl context({.workers = 3}, test::FourCores());
  const TaskGraph graph = test::RandomGraph(5, 40, 3);
  const test::StateMemory state(graph);
  std::atomic<int> faults{0};
  auto run_task = [&](int32_t task, int) { faults += test::FaultsOfOneCall(context, static_cast<uint64_t>(task)); };
  EXPECT_TRUE(context.BorrowExecutor()->Run(graph, TaskFunction(run_task), state.get()).ok());
  EXPECT_EQ(faults.load(), 0);
}

}  // namespace
}  // namespace fa::core
