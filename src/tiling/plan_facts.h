#ifndef FA_TILING_PLAN_FACTS_H_
#define FA_TILING_PLAN_FACTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "fa/plan_info.h"
#include "tiling/problem.h"
#include "tiling/workspace_plan.h"

namespace fa::tiling {

/// What a plan tells of itself, whatever its operator: PlanInfo and the words of Describe() are made of it alone.
struct PlanFacts {
  std::string op;
  Machine machine;
  std::vector<std::string> kernels;
  std::string reason;
  int64_t block_q = 0, block_k = 0;
  const core::TaskGraph& graph;
  double flops = 0, flops_full = 0, flops_visited = 0;  ///< as PlanInfo
  std::vector<double> load;
  double efficiency = 1;
  /// Workers claim tasks from one list as they come: nobody can predict who takes which.
  bool unpredicted = false;

  std::string problem;  ///< lines: what is computed
  std::string tasks;    ///< lines: how it is cut
  std::string loads;    ///< lines: who does how much
  std::function<std::vector<PlanTile>()> tiles;
  std::optional<RanksInfo> ranks = {};
};

[[nodiscard]] PlanInfo InfoOf(const PlanFacts& facts, const WorkspacePlan& workspace);
/// The plan in words.
[[nodiscard]] std::string Describe(const PlanFacts& facts, const WorkspacePlan& workspace);

/// For every task, the worker in whose range it starts.
[[nodiscard]] std::vector<int> FirstWorkers(const core::TaskGraph& graph);

/// Mean of the workers' loads, which are fractions of the longest; 1 if there is nothing to do.
[[nodiscard]] double MeanLoad(const std::vector<double>& load);

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_FACTS_H_
