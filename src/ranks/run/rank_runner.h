#ifndef FA_RANKS_RUN_RANK_RUNNER_H_
#define FA_RANKS_RUN_RANK_RUNNER_H_

#include <cstddef>

#include "core/run/executor.h"
#include "core/task_graph.h"
#include "fa/context.h"
#include "ops/plan/plan_impl.h"

namespace fa::ops {

/// Runs graphs on the context's threads, or on the caller's thread if there is no memory for threads. After the ranks
/// have agreed to run, no rank may fail for lack of threads.
class RankRunner final : public GraphRunner {
 public:
  /// Makes a runner for one run.
  /// @param arrivals  the arrivals that the calling thread polls between its tasks, or null
  RankRunner(Context& context, core::Arrivals* arrivals) : context_(context), arrivals_(arrivals) {}

  [[nodiscard]] Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task,
                                std::byte* state) const override;

 private:
  Context& context_;
  core::Arrivals* arrivals_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_RANK_RUNNER_H_
