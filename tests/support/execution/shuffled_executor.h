#ifndef FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_
#define FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_

#include <cstdint>
#include <random>

#include "core/run/executor.h"

namespace fa::test {

/// Runs a graph's tasks on the calling thread in a random topological order. Each step draws one of the ready tasks,
/// and a worker number for it. A graph with a cycle is an internal error.
class ShuffledExecutor final : public core::Executor {
 public:
  explicit ShuffledExecutor(uint64_t seed, int workers = 1) : random_(seed), workers_(workers) {}

  [[nodiscard]] Status Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) override;
  [[nodiscard]] int workers() const override { return workers_; }

 private:
  std::mt19937_64 random_;
  int workers_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SHUFFLED_EXECUTOR_H_
