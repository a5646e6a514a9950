#ifndef FA_CORE_SERIAL_EXECUTOR_H_
#define FA_CORE_SERIAL_EXECUTOR_H_

#include "core/run/executor.h"

namespace fa::core {

/// Runs the tasks on the caller's thread, in claim order, as worker 0. The function needs no run state, since claim
/// order is topological.
[[nodiscard]] Status RunInOrder(const TaskGraph& graph, TaskFunction run_task);

/// Runs every graph on the caller's thread. Tests compare the parallel executors with it.
class SerialExecutor final : public Executor {
 public:
  [[nodiscard]] Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* /*state*/) override {
    return RunInOrder(graph, run_task);
  }
  [[nodiscard]] int workers() const override { return 1; }
};

}  // namespace fa::core

#endif  // FA_CORE_SERIAL_EXECUTOR_H_
