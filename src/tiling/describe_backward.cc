#include "tiling/describe_backward.h"

#include <algorithm>

#include "tiling/backward_tiles.h"
#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

void AddOrder(const AttentionProblem& problem, PlanText& text) {
  const auto descending = std::count_if(problem.sequences.begin(), problem.sequences.end(),
                                        [](const Sequence& sequence) { return ColumnsDescend(sequence.rule); });
  if (descending == 0 || descending == std::ssize(problem.sequences)) {
    text.AddLine("dq: key blocks added from the %s", descending == 0 ? "first to the last" : "last to the first");
  } else {
    text.AddLine("dq: key blocks added from the last to the first in %lld sequences, from the first in the others",
                 Wide(descending));
  }
}

void AddLoad(const BackwardPlan& plan, PlanText& text) {
  if (plan.load.empty()) return;
  text.AddLine("load: least %.3f of the whole time", *std::min_element(plan.load.begin(), plan.load.end()));
  for (size_t worker = 0; worker < plan.load.size(); ++worker) {
    text.AddLine("  worker %lld: load %.3f", Count(worker), plan.load[worker]);
  }
}

}  // namespace

std::string DescribeBackward(const AttentionProblem& problem, const Machine& machine, const BackwardPlan& plan,
                             const WorkspacePlan& workspace, const std::vector<std::string>& kernels) {
  PlanText text;
  text.AddProblem("backward", problem);
  text.AddKernels(machine, kernels);
  text.AddLine("tile: %lld rows x %lld keys: %s", Wide(plan.block_q), Wide(plan.block_k), plan.reason.c_str());
  AddOrder(problem, text);
  const size_t gates = static_cast<size_t>(plan.graph.task_count) - plan.items.size();
  text.AddLine("tasks: %lld tiles, %lld gates, %lld edges, claimed from one list", Count(plan.items.size()),
               Count(gates), Count(plan.graph.successors.size()));
  text.AddLine("in flight: %lld kv heads, of up to %lld rows and %lld keys each", Wide(plan.slots),
               Wide(plan.slot_rows), Wide(plan.slot_keys));
  text.AddFlops(plan.flops, plan.flops_full, plan.flops_visited);
  text.AddWorkspace(workspace);
  text.AddWorkers(machine, plan.efficiency);
  AddLoad(plan, text);
  return text.Take();
}

}  // namespace fa::tiling
