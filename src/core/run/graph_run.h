#ifndef FA_CORE_GRAPH_RUN_H_
#define FA_CORE_GRAPH_RUN_H_

#include <atomic>
#include <string_view>
#include <utility>

#include "core/fp_environment.h"
#include "core/kernels/tile_use.h"
#include "core/run/claim_state.h"
#include "core/run/executor.h"
#include "fa/status.h"

namespace fa::core {

/// What is short of memory when a task throws std::bad_alloc.
inline constexpr std::string_view kInsideATask = "inside a task";

/// The first failure of a run; the thread that fails first keeps it.
class FirstFailure {
 public:
  /// Call it from a catch block.
  void KeepCurrentException() noexcept;
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Call it only when no thread can be inside KeepCurrentException any more.
  [[nodiscard]] Status TakeStatus() { return std::move(status_); }

 private:
  std::atomic<bool> failed_{false};
  Status status_;
};

/// One run of a graph, as every parallel executor drives it from its threads.
class GraphRun {
 public:
  GraphRun(const TaskGraph& graph, TaskFunction run_task, std::byte* state)
      : claims_(graph, state), run_task_(run_task) {}

  /// Runs tasks as `worker`, in the library's floating-point environment and a scope of tiles, until there is none left
  /// for it. `on_queued(n)` is called when n tasks became available to others. After a failure nothing is started any
  /// more.
  template <typename OnQueued>
  void Walk(int worker, OnQueued&& on_queued) noexcept {
    const FpEnvironment environment;
    const kernels::TileScope tiles;
    try {
      int32_t task = ClaimState::kNone;
      while (!failure_.failed() && (task != ClaimState::kNone || (task = claims_.Next(worker)) != ClaimState::kNone)) {
        run_task_(task, worker);
        const ClaimState::Released released = claims_.Complete(task, worker);
        if (released.queued > 0) on_queued(released.queued);
        task = released.next;
      }
    } catch (...) {
      failure_.KeepCurrentException();
    }
  }

  /// Walks as `worker`, one of several that nobody wakes: a worker that finds no task stays, and looks again, until no
  /// other worker walks.
  void WalkToEnd(int worker) noexcept;

  [[nodiscard]] bool HasQueued() const { return !failure_.failed() && claims_.HasQueued(); }
  /// Call it when every walk has ended.
  [[nodiscard]] Status TakeStatus() { return failure_.TakeStatus(); }

 private:
  ClaimState claims_;
  TaskFunction run_task_;
  FirstFailure failure_;
  std::atomic<int> walking_{0};  ///< workers inside WalkToEnd that may still free tasks
};

}  // namespace fa::core

#endif  // FA_CORE_GRAPH_RUN_H_
