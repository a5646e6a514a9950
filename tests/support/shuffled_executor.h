#ifndef FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_
#define FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_

#include <cstdint>
#include <random>

#include "core/executor.h"

namespace fa::test {

/// Runs a graph's tasks on the caller in some topological order, drawn at random among those ready at each step, each
/// on a random one of the graph's workers. A graph with a cycle is an internal error.
class ShuffledExecutor final : public core::Executor {
 public:
  explicit ShuffledExecutor(uint32_t seed) : random_(seed) {}

  [[nodiscard]] Status Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) override;
  [[nodiscard]] int workers() const override { return 1; }

 private:
  std::mt19937 random_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_
