#ifndef FA_CORE_GRAPH_RUN_H_
#define FA_CORE_GRAPH_RUN_H_

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
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
  void Keep(Status status) noexcept;
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
  /// @param polled  one thread calls WalkWithGates, or WalkToEnd with gates
  GraphRun(const TaskGraph& graph, TaskFunction run_task, std::byte* state, bool polled)
      : claims_(graph, state), run_task_(run_task), polled_(polled), tasks_(graph.task_count), gates_(graph.gates()) {}

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
        task = RunTask(task, worker, on_queued);
      }
    } catch (...) {
      failure_.KeepCurrentException();
    }
  }

  /// As Walk, on the thread that opens the gates: it polls before every task, and over and over while it finds none,
  /// until the gates are done and every task has run, or the run has failed. A gate that is closed when they are done
  /// is a failure: its tasks have not run. No more than one thread of a run.
  template <typename OnQueued>
  void WalkWithGates(int worker, ArrivalGates& gates, OnQueued&& on_queued) noexcept {
    const FpEnvironment environment;
    const kernels::TileScope tiles;
    try {
      int32_t task = ClaimState::kNone;
      int64_t idle = 0;  // polls since the last task
      for (;;) {
        if (const int queued = Poll(worker, gates); queued > 0) on_queued(queued);
        if (failure_.failed()) return;
        if (task == ClaimState::kNone) task = claims_.Next(worker);
        if (task == ClaimState::kNone) {
          if (gates.done()) {
            if (opened_ != gates_) failure_.Keep(Status::Internal("a gate of the graph has stayed closed"));
            if (failure_.failed() || ran_.load(std::memory_order_acquire) == tasks_) return;
          }
          WaitToLook(idle++);
          continue;
        }
        idle = 0;
        task = RunTask(task, worker, on_queued);
      }
    } catch (...) {
      failure_.KeepCurrentException();
    }
  }

  [[nodiscard]] bool failed() const { return failure_.failed(); }

  /// Walks as `worker`, one of several that nobody wakes: a worker that finds no task stays, and looks again, until
  /// every task has run or the run has failed.
  void WalkToEnd(int worker) noexcept;
  /// As WalkToEnd, on the thread that opens the gates. ExpectGates is called before any worker walks.
  void WalkToEnd(int worker, ArrivalGates& gates) noexcept;
  void ExpectGates() { walking_.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] bool HasQueued() const { return !failure_.failed() && claims_.HasQueued(); }
  /// Call it when every walk has ended.
  [[nodiscard]] Status TakeStatus() { return failure_.TakeStatus(); }

 private:
  /// Returns the task to run next, or kNone.
  template <typename OnQueued>
  int32_t RunTask(int32_t task, int worker, OnQueued&& on_queued) {
    run_task_(task, worker);
    if (polled_) ran_.fetch_add(1, std::memory_order_release);
    const ClaimState::Released released = claims_.Complete(task, worker);
    if (released.queued > 0) on_queued(released.queued);
    return released.next;
  }
  /// Before a thread without a task polls or looks for one again. After some time it sleeps: where threads and ranks
  /// are more than cores, others need the core for what it waits for.
  static void WaitToLook(int64_t looks) {
    constexpr int64_t kYields = 256;
    if (looks < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  /// Returns how many tasks became available.
  int Poll(int worker, ArrivalGates& gates) {
    class Opener final : public GateOpener {
     public:
      Opener(GraphRun& run, int worker) : run_(run), worker_(worker) {}
      void Open(int32_t gate) override {
        ++run_.opened_;
        queued += run_.claims_.Open(gate, worker_);
      }
      int queued = 0;

     private:
      GraphRun& run_;
      int worker_;
    } opener(*this, worker);
    if (Status status = gates.Poll(opener); !status.ok()) failure_.Keep(std::move(status));
    return opener.queued;
  }

  ClaimState claims_;
  TaskFunction run_task_;
  FirstFailure failure_;
  const bool polled_;
  const int32_t tasks_;
  std::atomic<int32_t> ran_{0};     ///< of a run that is polled: tasks
  int32_t gates_ = 0, opened_ = 0;  ///< opened_: of the thread that polls
  std::atomic<int> walking_{0};     ///< of WalkToEnd: workers that may still free tasks
};

}  // namespace fa::core

#endif  // FA_CORE_GRAPH_RUN_H_
