#ifndef FA_CORE_SERIAL_EXECUTOR_H_
#define FA_CORE_SERIAL_EXECUTOR_H_

#include <cstdint>
#include <optional>

#include "core/executor.h"

namespace fa::core {

/// Runs the tasks on the caller, in claim order, as worker 0. No run state is needed: the order is topological.
[[nodiscard]] Status RunInOrder(const TaskGraph& graph, TaskFunction run_task);

/// Runs every graph on the caller: the oracle of the parallel executors. With a seed it starts, at each step, one of
/// the ready tasks at random; whatever depends on the order shows as a difference between seeds.
class SerialExecutor final : public Executor {
 public:
  SerialExecutor() = default;
  explicit SerialExecutor(uint64_t shuffle_seed) : shuffle_seed_(shuffle_seed) {}

  [[nodiscard]] Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) override;
  [[nodiscard]] int workers() const override { return 1; }

 private:
  std::optional<uint64_t> shuffle_seed_;
};

}  // namespace fa::core

#endif  // FA_CORE_SERIAL_EXECUTOR_H_
