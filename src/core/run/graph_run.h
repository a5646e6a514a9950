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

/// The last words of the error for a task that throws std::bad_alloc: "out of memory inside a task".
inline constexpr std::string_view kInsideATask = "inside a task";

/// The first failure of a run. The thread that fails first stores its failure here.
class FirstFailure {
 public:
  /// Keeps the exception that is being handled, if it is the first failure. Call this function from a catch block.
  void KeepCurrentException() noexcept;
  void Keep(Status status) noexcept;
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Returns the failure. Call this function only when no thread can be inside KeepCurrentException any more.
  [[nodiscard]] Status TakeStatus() { return std::move(status_); }

 private:
  std::atomic<bool> failed_{false};
  Status status_;
};

/// One run of a graph. Every parallel executor makes a GraphRun per run, and its threads call the Walk functions.
class GraphRun {
 public:
  /// Prepares a run.
  /// @param arrivals  inputs for which one thread polls, or null
  GraphRun(const TaskGraph& graph, TaskFunction run_task, std::byte* state, Arrivals* arrivals = nullptr)
      : claims_(graph, state),
        run_task_(run_task),
        arrivals_(arrivals),
        tasks_(graph.task_count),
        missing_(graph.arrivals),
        walking_(arrivals == nullptr ? 0 : 1) {}

  /// Runs tasks as `worker` until none is left for it, in the library's floating-point environment and in a TileScope
  /// (AMX). Walk calls `on_queued(n)` when n tasks have become available to other workers. After a failure, Walk starts
  /// no task.
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

  /// Does what Walk does, and also polls the arrivals: before every task, and again and again while there is no task.
  /// The function ends when the arrivals are done and every task has run, or when the run has failed. If an input is
  /// then missing, the run fails.
  template <typename OnQueued>
  void WalkAndPoll(int worker, OnQueued&& on_queued) noexcept {
    const FpEnvironment environment;
    const kernels::TileScope tiles;
    try {
      int32_t task = ClaimState::kNone;
      int64_t idle = 0;  // number of polls since the last task
      for (;;) {
        if (const int queued = Poll(worker); queued > 0) on_queued(queued);
        if (failure_.failed()) return;
        if (task == ClaimState::kNone) task = claims_.Next(worker);
        if (task == ClaimState::kNone) {
          if (arrivals_->done()) {
            if (missing_ > 0) failure_.Keep(Status::Internal("an input of the graph has not arrived"));
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

  [[nodiscard]] bool polls() const { return arrivals_ != nullptr; }
  [[nodiscard]] bool failed() const { return failure_.failed(); }

  /// Walks as `worker`, on an executor that does not wake workers for queued tasks. A worker that finds no task looks
  /// again, until every task has run or the run has failed. Worker 0 is the thread that polls.
  void WalkToEnd(int worker) noexcept;

  [[nodiscard]] bool HasQueued() const { return !failure_.failed() && claims_.HasQueued(); }
  /// Returns the status of the run. Call this function when every walk has ended.
  [[nodiscard]] Status TakeStatus() { return failure_.TakeStatus(); }

 private:
  /// Runs a task. Returns the task to run next, or kNone.
  template <typename OnQueued>
  int32_t RunTask(int32_t task, int worker, OnQueued&& on_queued) {
    run_task_(task, worker);
    if (polls()) ran_.fetch_add(1, std::memory_order_release);
    const ClaimState::Released released = claims_.Complete(task, worker);
    if (released.queued > 0) on_queued(released.queued);
    return released.next;
  }
  /// Gives the core to another thread: yields or, after many `looks`, sleeps. If there are more threads than cores, a
  /// thread that has a task may need the core.
  static void WaitToLook(int64_t looks) {
    constexpr int64_t kYields = 256;
    if (looks < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  /// Polls the arrivals. Returns the number of tasks that became available.
  int Poll(int worker) {
    int queued = 0;
    auto arrived = [&](int32_t arrival) {
      --missing_;
      queued += claims_.Arrive(arrival, worker);
    };
    if (Status status = arrivals_->Poll(OnArrival(arrived)); !status.ok()) failure_.Keep(std::move(status));
    return queued;
  }

  ClaimState claims_;
  TaskFunction run_task_;
  FirstFailure failure_;
  Arrivals* const arrivals_;
  const int32_t tasks_;
  std::atomic<int32_t> ran_{0};  ///< the number of tasks that have run; counted only if a thread polls
  int32_t missing_;              ///< the number of inputs that have not arrived; used only by the thread that polls
  std::atomic<int> walking_;     ///< workers in WalkToEnd that may still free tasks, including the thread that polls
};

}  // namespace fa::core

#endif  // FA_CORE_GRAPH_RUN_H_
