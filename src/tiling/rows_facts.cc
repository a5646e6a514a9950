#include "tiling/rows_facts.h"

#include <vector>

#include "tiling/plan_text.h"

namespace fa::tiling {

PlanFacts FactsOf(const RowsPlan& plan, const Machine& machine, const RowsFacts& facts) {
  PlanText tasks;
  tasks.AddLine("tasks: %lld of %lld rows: %s", Wide(plan.graph.task_count), Wide(plan.step), facts.reason);
  const std::vector<double> load = plan.Load();
  return {.op = facts.op,
          .machine = machine,
          .kernels = {facts.kernel},
          .reason = facts.reason,
          .block_q = plan.step,
          .graph = plan.graph,
          .flops = facts.flops,
          .flops_full = facts.flops,
          .flops_visited = facts.flops,
          .load = load,
          .efficiency = MeanLoad(load),
          .problem = facts.problem,
          .tasks = tasks.Take(),
          .loads = {},
          .tiles = {}};
}

}  // namespace fa::tiling
