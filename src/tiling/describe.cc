#include "tiling/describe.h"

#include <algorithm>
#include <numeric>

#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

void AddTasks(const AttentionProblem& problem, const ForwardPlan& plan, PlanText& text) {
  const size_t gates = static_cast<size_t>(plan.graph.task_count) - plan.items.size() - plan.packs.size();
  text.AddLine("tasks: %lld tiles, %lld packs, %lld gates, %lld edges", Count(plan.items.size()),
               Count(plan.packs.size()), Count(gates), Count(plan.graph.successors.size()));
  if (plan.merges > 0) {
    text.AddLine("decode: the keys of %lld tiles are cut into %lld parts, added in their order", Wide(plan.merges),
                 Wide(plan.states));
  }
  if (plan.packs.empty()) {
    text.AddLine("k and v: read where they are");
  } else {
    text.AddLine("k and v: %s packed to %s once per head, %lld slots of %lld rows",
                 plan.pack_k && plan.pack_v ? "both" : (plan.pack_k ? "k" : "v"),
                 problem.dtype == DType::kI8 ? "words" : "f32", Wide(plan.kv_slots), Wide(plan.slot_rows));
  }
}

void AddLoad(const ForwardPlan& plan, PlanText& text) {
  if (plan.load.empty()) return;
  const double mean = std::accumulate(plan.load.begin(), plan.load.end(), 0.0) / static_cast<double>(plan.load.size());
  text.AddLine("load: least %.3f, mean %.3f of the longest range",
               *std::min_element(plan.load.begin(), plan.load.end()), mean);
  for (size_t worker = 0; worker < plan.load.size(); ++worker) {
    const int64_t tasks = plan.graph.range_begin[worker + 1] - plan.graph.range_begin[worker];
    text.AddLine("  worker %lld: %lld tasks, load %.3f", Count(worker), Wide(tasks), plan.load[worker]);
  }
}

}  // namespace

std::string DescribeForward(const AttentionProblem& problem, const Machine& machine, const ForwardPlan& plan,
                            const WorkspacePlan& workspace, const std::vector<std::string>& kernels, const char* op) {
  PlanText text;
  text.AddProblem(op, problem);
  text.AddKernels(machine, kernels);
  text.AddLine("tile: %lld rows x %lld keys: %s", Wide(plan.shape.block_q), Wide(plan.shape.block_k),
               plan.shape.reason.c_str());
  AddTasks(problem, plan, text);
  text.AddFlops(plan.flops, plan.flops_full, plan.flops_visited);
  text.AddWorkspace(workspace);
  text.AddWorkers(machine, plan.efficiency);
  AddLoad(plan, text);
  return text.Take();
}

}  // namespace fa::tiling
