#ifndef FA_CORE_EXECUTOR_H_
#define FA_CORE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>

#include "core/function_ref.h"
#include "core/task_graph.h"
#include "fa/status.h"

namespace fa::core {

/// Runs one task: (task id, worker slot in [0, workers)). No two concurrent calls see the same slot.
using TaskFunction = FunctionRef<void(int32_t, int)>;

/// Tells a run that an input of its graph has arrived. Each input arrives once per run.
using OnArrival = FunctionRef<void(int32_t)>;

/// Inputs of a graph that arrive while it runs. The thread that called the executor polls them between the tasks that
/// it runs. While it finds no task, it polls again and again, until the last task of all has run.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Reports the inputs that have arrived, and does whatever else that thread has to do during the run. It does not
  /// wait for anything that a task of the graph has yet to do. After an error no task is started any more, and the run
  /// ends with it.
  [[nodiscard]] virtual Status Poll(OnArrival arrived) = 0;
  /// Whether every input has arrived, and nothing is left that would have to be polled for after the last task.
  [[nodiscard]] virtual bool done() const = 0;
};

/// Runs a TaskGraph. All run state lies in `state` (RunStateBytes(graph) bytes, 64-byte aligned), so one graph may be
/// run by many executors at once.
///
/// The claim rule of every parallel executor: worker c walks its own range front to back; a worker whose range is done
/// takes the back half of the largest remaining one. A claimed task that still waits for a predecessor is run by
/// the worker that completes the last of them. An exception thrown by a task (std::bad_alloc included) becomes the
/// returned status; tasks not yet started are then skipped.
class Executor {
 public:
  virtual ~Executor() = default;
  /// @param graph  a graph without arrivals
  [[nodiscard]] virtual Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) = 0;
  /// Runs a graph during which the calling thread has something to poll for. Tasks whose inputs have not arrived have
  /// not started when the run ends with an error.
  [[nodiscard]] virtual Status RunWithArrivals(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                               Arrivals& arrivals);
  /// Worker slots that run_task can see.
  [[nodiscard]] virtual int workers() const = 0;
};

/// Bytes of run state for a graph: ready counters and claim ranges.
[[nodiscard]] size_t RunStateBytes(const TaskGraph& graph);

}  // namespace fa::core

#endif  // FA_CORE_EXECUTOR_H_
