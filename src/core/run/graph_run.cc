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

Status Executor::RunWithArrivals(const TaskGraph& graph, TaskFunction run_task, std::byte* state, Arrivals& arrivals) {
  return GuardedCall(kInsideATask, [&] {
    GraphRun run(graph, run_task, state, &arrivals);
    run.WalkAndPoll(0, [](int /*queued*/) {});
    return run.TakeStatus();
  });
}

void GraphRun::WalkToEnd(int worker) noexcept {
  if (polls() && worker == 0) {
    WalkAndPoll(worker, [](int /*queued*/) {});
    walking_.fetch_sub(1, std::memory_order_seq_cst);
  }
  for (;;) {
    // The memory order is sequentially consistent, as for ClaimState's queues. A worker stops walking only if it finds
    // the queues empty. So if a worker has walked and then sees that no other worker walks, every task has ended.
    walking_.fetch_add(1, std::memory_order_seq_cst);
    Walk(worker, [](int /*queued*/) {});
    walking_.fetch_sub(1, std::memory_order_seq_cst);
    if (!claims_.has_edges()) return;  // without edges nothing is ever queued
    for (int64_t looks = 0; !HasQueued(); ++looks) {
      if (walking_.load(std::memory_order_seq_cst) == 0) return;
      WaitToLook(looks);
    }
  }
}

}  // namespace fa::core
