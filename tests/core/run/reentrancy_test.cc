// Tests calls from inside tasks that the program itself gives to oneTBB. ThreadSanitizer does not run these tests,
// because it does not see how oneTBB starts such tasks.

#include <gtest/gtest.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <atomic>

#include "core/context/context_impl.h"
#include "core/run/context_calls.h"

namespace fa::core {
namespace {

TEST(Reentrancy, CallsFromInsideAParallelFor) {
  Context::Impl context({.workers = 3}, test::FourCores());
  std::atomic<int> faults{0}, calls{0};
  tbb::parallel_for(0, 100, [&](int i) {
    faults += test::FaultsOfOneCall(context, static_cast<uint64_t>(i));
    ++calls;
  });
  EXPECT_EQ(faults.load(), 0);
  EXPECT_EQ(calls.load(), 100);
}

TEST(Reentrancy, CallsFromInsideAnArenaOfOneThread) {
  Context::Impl context({.workers = 3}, test::FourCores());
  tbb::task_arena arena(1);
  EXPECT_EQ(arena.execute([&] { return test::FaultsOfOneCall(context, 1); }), 0);
}

TEST(Reentrancy, OutlivesTheTaskGroupOfItsFirstCall) {
  Context::Impl context({.workers = 3}, test::FourCores());
  for (int round = 0; round < 5; ++round) {
    tbb::task_group group;
    std::atomic<int> faults{0};
    group.run([&] { faults += test::FaultsOfOneCall(context, 7); });
    group.wait();
    EXPECT_EQ(faults.load(), 0);
    // After the program's own tasks are cancelled, later calls must still run all their tasks.
    group.cancel();
    group.wait();
  }
}

}  // namespace
}  // namespace fa::core
