#ifndef FA_TILING_PLAN_FACTS_H_
#define FA_TILING_PLAN_FACTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "fa/plan_info.h"
#include "tiling/problem.h"
#include "tiling/workspace_plan.h"

namespace fa::tiling {

/// What every operator's plan says about itself. PlanInfo and the text of Describe() are made from it.
struct PlanFacts {
  std::string op;
  Machine machine;
  std::vector<std::string> kernels;
  std::string reason;
  int64_t block_q = 0, block_k = 0;
  const core::TaskGraph& graph;
  double flops = 0, flops_full = 0, flops_visited = 0;  ///< floating-point operations, as in PlanInfo
  std::vector<double> load;
  double efficiency = 1;
  /// Whether workers claim tasks from one list, so that nobody knows before the run which worker takes which task.
  bool unpredicted = false;

  std::string problem;  ///< lines that say what is computed
  std::string tasks;    ///< lines that say how the problem is cut into tasks
  std::string loads;    ///< lines that say how much each worker does
  std::function<std::vector<PlanTile>()> tiles;
  std::string mask = {};  ///< result of MaskText; empty: `problem` says which keys are seen
};

[[nodiscard]] PlanInfo InfoOf(const PlanFacts& facts, const WorkspacePlan& workspace);
/// Returns the plan in words.
[[nodiscard]] std::string Describe(const PlanFacts& facts, const WorkspacePlan& workspace);

/// Returns, for every task, the worker in whose range the task starts.
[[nodiscard]] std::vector<int> FirstWorkers(const core::TaskGraph& graph);

/// Returns the mean of the workers' loads, which are fractions of the longest load. The mean is 1 if there is nothing
/// to do.
[[nodiscard]] double MeanLoad(const std::vector<double>& load);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_FACTS_H_
