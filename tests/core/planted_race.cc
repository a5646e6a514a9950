// A program with a race between two tasks that no edge orders, for race_detection_test: "flow" runs it on oneTBB,
// "threads" on std::threads, "ordered" on both with the edge that the race lacks.

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/flow_executor.h"
#include "core/random_graph.h"
#include "support/thread_executor.h"

namespace {

using fa::core::FlowExecutor;
using fa::core::TaskFunction;
using fa::core::TaskGraph;

std::unique_ptr<FlowExecutor> TwoFlowWorkers() {
  std::vector<FlowExecutor::Node> nodes;
  nodes.push_back({.workers = 2});
  return std::make_unique<FlowExecutor>(nodes);
}

/// Two tasks add to a plain integer. Without an edge each first waits for the other to have started, so that they run
/// on two threads; the relaxed counter orders nothing.
bool RunTwoWriters(fa::core::Executor& executor, bool ordered) {
  TaskGraph graph = fa::test::FlatGraph(2, 2);
  if (ordered) fa::test::AddEdges(graph, {{0, 1}});
  const fa::test::StateMemory state(graph);
  std::atomic<int> started{0};
  int sum = 0;
  auto run_task = [&](int32_t task, int) {
    started.fetch_add(1, std::memory_order_relaxed);
    while (!ordered && started.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    sum += task + 1;
  };
  const bool ok = executor.Run(graph, TaskFunction(run_task), state.get()).ok();
  return ok && (sum == 3 || !ordered);
}

/// ThreadSanitizer compares an access with those it has noted before; two that come within the same few instructions
/// may both be noted before either is compared. A hundred pairs do not all meet like that.
bool RaceOften(fa::core::Executor& executor) {
  bool ok = true;
  for (int run = 0; run < 100; ++run) ok = RunTwoWriters(executor, /*ordered=*/false) && ok;
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  fa::test::ThreadExecutor threads(2);
  if (std::strcmp(mode, "flow") == 0) return RaceOften(*TwoFlowWorkers()) ? 0 : 1;
  if (std::strcmp(mode, "threads") == 0) return RaceOften(threads) ? 0 : 1;
  if (std::strcmp(mode, "ordered") == 0) {
    bool ok = true;
    for (int run = 0; run < 100; ++run)
      ok = RunTwoWriters(*TwoFlowWorkers(), true) && RunTwoWriters(threads, true) && ok;
    return ok ? 0 : 1;
  }
  std::fprintf(stderr, "usage: planted_race flow|threads|ordered\n");
  return 2;
}
