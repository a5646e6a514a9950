// Calls from inside oneTBB's tasks. Not for ThreadSanitizer, which does not see how oneTBB hands the program's own
// tasks over.

#include <gtest/gtest.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <atomic>

#include "core/context_impl.h"
#include "core/run/count_faults.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

Topology FourCores() { return *Topology::FromSynthetic("numa:1 core:4 pu:1"); }

int FaultsOfOneCall(Context::Impl& context, uint64_t seed) {
  const TaskGraph graph = test::RandomGraph(seed, 60, context.workers());
  return test::CountFaults(*context.BorrowExecutor(), graph);
}

TEST(Reentrancy, CallsFromInsideAParallelFor) {
  Context::Impl context({.workers = 3}, FourCores());
  std::atomic<int> faults{0}, calls{0};
  tbb::parallel_for(0, 100, [&](int i) {
    faults += FaultsOfOneCall(context, static_cast<uint64_t>(i));
    ++calls;
  });
  EXPECT_EQ(faults.load(), 0);
  EXPECT_EQ(calls.load(), 100);
}

TEST(Reentrancy, CallsFromInsideAnArenaOfOneThread) {
  Context::Impl context({.workers = 3}, FourCores());
  tbb::task_arena arena(1);
  EXPECT_EQ(arena.execute([&] { return FaultsOfOneCall(context, 1); }), 0);
}

TEST(Reentrancy, OutlivesTheTaskGroupOfItsFirstCall) {
  Context::Impl context({.workers = 3}, FourCores());
  for (int round = 0; round < 5; ++round) {
    tbb::task_group group;
    std::atomic<int> faults{0};
    group.run([&] { faults += FaultsOfOneCall(context, 7); });
    group.wait();
    EXPECT_EQ(faults.load(), 0);
    // Cancelling the program's own tasks must not reach into later calls.
    group.cancel();
    group.wait();
  }
}

}  // namespace
}  // namespace fa::core
