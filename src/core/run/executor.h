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

/// Opens a gate of the graph that runs.
class GateOpener {
 public:
  /// Each gate is opened once.
  virtual void Open(int32_t gate) = 0;

 protected:
  ~GateOpener() = default;
};

/// What opens the gates of a graph while it runs. Its functions are called on the thread that called Run, between the
/// tasks that this thread runs, and over and over where it finds none to run, until the last task of all has run.
class ArrivalGates {
 public:
  virtual ~ArrivalGates() = default;
  /// Opens the gates whose time has come, and does whatever else that thread has to do during the run. It does not wait
  /// for anything that a task of the graph has yet to do. After an error no task is started any more, and the run ends
  /// with it.
  [[nodiscard]] virtual Status Poll(GateOpener& opener) = 0;
  /// Every gate has been opened, and nothing is left that would have to be polled for after the last task.
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
  /// @param graph  without gates
  [[nodiscard]] virtual Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) = 0;
  /// Runs a graph with gates, or one during which the calling thread has something to poll for. Tasks of closed gates
  /// have not started when the run ends with an error.
  [[nodiscard]] virtual Status RunWithGates(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                            ArrivalGates& gates);
  /// Worker slots that run_task can see.
  [[nodiscard]] virtual int workers() const = 0;
};

/// Bytes of run state for a graph: ready counters and claim ranges.
[[nodiscard]] size_t RunStateBytes(const TaskGraph& graph);

}  // namespace fa::core

#endif  // FA_CORE_EXECUTOR_H_
