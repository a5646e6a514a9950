#ifndef FA_TESTS_SUPPORT_THREAD_EXECUTOR_H_
#define FA_TESTS_SUPPORT_THREAD_EXECUTOR_H_

#include "core/run/executor.h"

namespace fa::test {

/// Runs graphs on std::threads, which claim tasks as the threads of the oneTBB executor do. ThreadSanitizer sees all
/// accesses, because no library takes part that is built without ThreadSanitizer. So each of its reports is a real
/// race.
class ThreadExecutor final : public core::Executor {
 public:
  explicit ThreadExecutor(int workers) : workers_(workers) {}

  [[nodiscard]] Status Run(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) override;
  [[nodiscard]] Status RunWithArrivals(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state,
                                       core::Arrivals& arrivals) override;
  [[nodiscard]] int workers() const override { return workers_; }

 private:
  [[nodiscard]] Status RunOnThreads(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state,
                                    core::Arrivals* arrivals);

  int workers_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_THREAD_EXECUTOR_H_
