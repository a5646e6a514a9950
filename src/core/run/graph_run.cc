#include "core/run/graph_run.h"

#include <chrono>
#include <thread>
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

void GraphRun::WalkToEnd(int worker) noexcept {
  // Sequentially consistent, as the queues of ClaimState: a worker queues tasks before it stops to walk, so one that
  // sees nobody walk and then nothing queued has missed none. (It may miss what another one frees that begins to walk
  // meanwhile; that one will run it.)
  do {
    walking_.fetch_add(1, std::memory_order_seq_cst);
    Walk(worker, [](int /*queued*/) {});
    walking_.fetch_sub(1, std::memory_order_seq_cst);
    if (!claims_.has_edges()) return;  // nothing is ever queued
    for (int looks = 0; !HasQueued() && walking_.load(std::memory_order_seq_cst) > 0; ++looks) {
      if (looks < 500) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));  // long tasks, and no hurry
      }
    }
  } while (HasQueued());
}

}  // namespace fa::core
