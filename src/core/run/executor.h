#ifndef FA_CORE_EXECUTOR_H_
#define FA_CORE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>

#include "core/function_ref.h"
#include "core/task_graph.h"
#include "fa/status.h"

namespace fa::core {

/// Runs one task. The arguments are the task's number and a worker slot in [0, workers). No two concurrent calls get
/// the same slot.
using TaskFunction = FunctionRef<void(int32_t, int)>;

/// Tells a run that an input of its graph has arrived. Each input arrives once per run.
using OnArrival = FunctionRef<void(int32_t)>;

/// Inputs of a graph that arrive while the graph runs. The thread that called the executor polls for them until the
/// last task of the graph has run. It polls between its tasks, and all the time while it has no task.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Calls `arrived` for each input that has arrived, and does whatever else the thread has to do during the run. Poll
  /// never waits for the result of a task of the graph. If Poll returns an error, no further task starts, and the run
  /// returns the error.
  [[nodiscard]] virtual Status Poll(OnArrival arrived) = 0;
  /// Returns whether every input has arrived and no polls are needed after the last task.
  [[nodiscard]] virtual bool done() const = 0;
};

/// Runs task graphs. All state of a run lies in `state` (RunStateBytes(graph) bytes, 64-byte aligned), so several
/// executors may run one graph at the same time.
///
/// All parallel executors share tasks in the same way. Worker c walks its own range from front to back. A worker whose
/// range is done takes the back half of the largest remaining range. If a claimed task still waits for predecessors,
/// the worker that completes the last predecessor runs the task. If a task throws an exception (std::bad_alloc
/// included), the run returns the exception as a status and starts no further tasks.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs a graph.
  /// @param graph  a graph without arrivals
  [[nodiscard]] virtual Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) = 0;
  /// Runs a graph while the calling thread polls `arrivals`. A task whose inputs have not arrived never starts, even if
  /// the run ends with an error.
  [[nodiscard]] virtual Status RunWithArrivals(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                               Arrivals& arrivals);
  /// Returns the number of worker slots that run_task can see.
  [[nodiscard]] virtual int workers() const = 0;
};

/// Returns the size in bytes of a graph's run state, which holds counters of tasks and claim ranges.
[[nodiscard]] size_t RunStateBytes(const TaskGraph& graph);

}  // namespace fa::core

#endif  // FA_CORE_EXECUTOR_H_
