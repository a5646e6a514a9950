#ifndef FA_TILING_SPARSE_FACTS_H_
#define FA_TILING_SPARSE_FACTS_H_

#include <string>
#include <vector>

#include "core/task_graph.h"
#include "tiling/plan_facts.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::tiling {

/// Returns the PlanFacts of sparse attention. They refer to the plan, the graph and what `sparse` refers to.
/// @param graph  the graph that runs: the graph of the plan or of its KeySumPlan
[[nodiscard]] PlanFacts FactsOf(const SparseProblem& sparse, const Machine& machine, const SparsePlan& plan,
                                const core::TaskGraph& graph, std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_SPARSE_FACTS_H_
