#ifndef FA_TESTS_CORE_RUN_CONTEXT_CALLS_H_
#define FA_TESTS_CORE_RUN_CONTEXT_CALLS_H_

#include <atomic>
#include <cstdint>
#include <thread>

#include "core/context/context_impl.h"
#include "core/run/count_faults.h"
#include "core/run/random_graph.h"

namespace fa::test {

inline core::Topology FourCores() { return *core::Topology::FromSynthetic("numa:1 core:4 pu:1"); }

/// Runs a random graph on an executor borrowed from the context. Returns what CountFaults returns.
[[nodiscard]] inline int FaultsOfOneCall(Context::Impl& context, uint64_t seed) {
  const core::TaskGraph graph = RandomGraph(seed, 60, context.workers());
  return CountFaults(*context.BorrowExecutor(), graph);
}

/// Runs as many tasks as the context has workers. Each task waits until all have begun, so it needs a thread of its
/// own. Returns true if all began.
[[nodiscard]] inline bool EveryWorkerComes(Context::Impl& context) {
  const core::TaskGraph graph = FlatGraph(context.workers(), context.workers());
  const StateMemory state(graph);
  std::atomic<int> inside{0};
  auto wait_for_all = [&](int32_t, int) {
    ++inside;
    while (inside.load() < context.workers()) std::this_thread::yield();
  };
  return context.BorrowExecutor()->Run(graph, core::TaskFunction(wait_for_all), state.get()).ok();
}

}  // namespace fa::test

#endif  // FA_TESTS_CORE_RUN_CONTEXT_CALLS_H_
