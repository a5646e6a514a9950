#include "core/run/graph_run.h"

#include <utility>

#include "core/run/guarded_call.h"

namespace fa::core {

void FirstFailure::KeepCurrentException() noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  status_ = StatusOfCurrentException(kInsideATask);
}

void FirstFailure::Keep(Status status) noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  status_ = std::move(status);
}

Status Executor::RunWithGates(const TaskGraph& graph, TaskFunction run_task, std::byte* state, ArrivalGates& gates) {
  return GuardedCall(kInsideATask, [&] {
    GraphRun run(graph, run_task, state);
    run.WalkWithGates(0, gates, [](int /*queued*/) {});
    return run.TakeStatus();
  });
}

}  // namespace fa::core
