// Programs for race_detection_test, most of which have a race between tasks that no edge orders:
// - "flow": two plain tasks on oneTBB;
// - "threads": two plain tasks on std::threads;
// - "ordered": both programs, with an edge that orders the two tasks;
// - "tile-flow", "tile-threads", "tile-ordered": the same programs with tiles of the backward pass as tasks, whose
//   edges order the sums of dK and dV.

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "core/run/random_graph.h"
#include "support/cases/operator_calls.h"
#include "support/execution/context_on.h"
#include "support/execution/thread_executor.h"

namespace {

using fa::core::TaskFunction;
using fa::core::TaskGraph;
using fa::test::ExecutorKind;

constexpr int kWorkers = 2;

/// Two tasks add to an integer that is not atomic. Without an edge, each waits until the other has started, so they run
/// on two threads. The counter that they wait for is relaxed and orders nothing.
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

/// ThreadSanitizer may miss a race if both accesses come within a few instructions. The race
/// runs a hundred times, and ThreadSanitizer finds it at least once.
bool RaceOften(fa::core::Executor& executor) {
  bool ok = true;
  for (int run = 0; run < 100; ++run) ok = RunTwoWriters(executor, /*ordered=*/false) && ok;
  return ok;
}

/// Runs graphs without their edges. Tasks then follow the claim order, in which the tasks of one key block lie
/// together. All workers begin at once, so that each runs some of these tasks. The relaxed counters order nothing.
class WithoutEdges final : public fa::core::Executor {
 public:
  explicit WithoutEdges(std::unique_ptr<fa::core::Executor> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] fa::Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) override {
    TaskGraph bare = graph;
    bare.predecessor_count.clear();
    bare.successor_begin.clear();
    bare.successors.clear();
    if (!graph.has_edges()) return fa::Status::Internal("no edge to leave out");
    std::array<std::atomic<bool>, kWorkers> has_come{};
    std::atomic<int> come{0};
    auto run_together = [&](int32_t task, int worker) {
      if (!has_come[static_cast<size_t>(worker)].exchange(true, std::memory_order_relaxed)) {
        come.fetch_add(1, std::memory_order_relaxed);
      }
      while (come.load(std::memory_order_relaxed) < kWorkers) std::this_thread::yield();
      run_task(task, worker);
    };
    return inner_->Run(bare, TaskFunction(run_together), state);
  }
  [[nodiscard]] int workers() const override { return inner_->workers(); }

 private:
  std::unique_ptr<fa::core::Executor> inner_;
};

/// Runs on the portable level, because ThreadSanitizer does not see what some intrinsics write.
bool RunTiles(ExecutorKind kind, bool ordered) {
  const auto make = [=]() -> std::unique_ptr<fa::core::Executor> {
    auto executor = fa::test::MakeExecutor(kind, kWorkers);
    if (ordered) return executor;
    return std::make_unique<WithoutEdges>(std::move(executor));
  };
  const fa::test::OperatorCall call = fa::test::OperatorOf("Backward", fa::test::ValueKind::kNormal);
  const auto context = fa::test::ContextOn(make, fa::Isa::kPortable, kWorkers);
  for (int run = 0; run < 10; ++run) {
    const fa::Status status = call.run(context.get());
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    if (!status.ok()) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto flow = fa::test::MakeExecutor(ExecutorKind::kFlow, kWorkers);
  fa::test::ThreadExecutor threads(kWorkers);
  if (mode == "flow") return RaceOften(*flow) ? 0 : 1;
  if (mode == "threads") return RaceOften(threads) ? 0 : 1;
  if (mode == "ordered") {
    bool ok = true;
    for (int run = 0; run < 100; ++run) {
      const auto fresh = fa::test::MakeExecutor(ExecutorKind::kFlow, kWorkers);
      ok = RunTwoWriters(*fresh, true) && RunTwoWriters(threads, true) && ok;
    }
    return ok ? 0 : 1;
  }
  if (mode == "tile-flow") return RunTiles(ExecutorKind::kFlow, /*ordered=*/false) ? 0 : 1;
  if (mode == "tile-threads") return RunTiles(ExecutorKind::kThreads, /*ordered=*/false) ? 0 : 1;
  if (mode == "tile-ordered") {
    return RunTiles(ExecutorKind::kFlow, true) && RunTiles(ExecutorKind::kThreads, true) ? 0 : 1;
  }
  std::fprintf(stderr, "usage: planted_race [tile-]flow|[tile-]threads|[tile-]ordered\n");
  return 2;
}
