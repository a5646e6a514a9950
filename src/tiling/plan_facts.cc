#include "tiling/plan_facts.h"

#include <numeric>

#include "tiling/plan_text.h"

namespace fa::tiling {

PlanInfo InfoOf(const PlanFacts& facts, const WorkspacePlan& workspace) {
  PlanInfo info;
  info.op = facts.op;
  info.isa = Name(facts.machine.isa);
  info.kernels = facts.kernels;
  info.reason = facts.reason;
  info.block_q = facts.block_q;
  info.block_k = facts.block_k;
  info.tasks = facts.graph.task_count;
  info.edges = std::ssize(facts.graph.successors);
  info.workers = facts.graph.workers();
  info.flops = facts.flops;
  info.flops_full = facts.flops_full;
  info.flops_visited = facts.flops_visited;
  info.workspace_bytes = workspace.total_bytes();
  info.load = facts.load;
  info.efficiency = facts.efficiency;
  if (facts.tiles) info.tiles = facts.tiles();
  return info;
}

std::string Describe(const PlanFacts& facts, const WorkspacePlan& workspace) {
  PlanText text;
  text.Add(facts.problem);
  if (!facts.mask.empty()) text.AddLine("mask: %s", facts.mask.c_str());
  if (!facts.kernels.empty()) text.AddKernels(facts.machine, facts.kernels);
  text.Add(facts.tasks);
  text.AddFlops(facts.flops, facts.flops_full, facts.flops_visited);
  text.AddWorkspace(workspace);
  if (facts.unpredicted) {
    text.AddLine("workers: %d on %d NUMA nodes, claiming from one list", facts.machine.workers, facts.machine.nodes);
  } else {
    text.AddWorkers(facts.machine, facts.efficiency);
  }
  text.Add(facts.loads);
  return text.Take();
}

double MeanLoad(const std::vector<double>& load) {
  return load.empty() ? 1 : std::accumulate(load.begin(), load.end(), 0.0) / static_cast<double>(load.size());
}

std::vector<int> FirstWorkers(const core::TaskGraph& graph) {
  std::vector<int> worker_of(static_cast<size_t>(graph.task_count));
  for (int w = 0; w < graph.workers(); ++w) {
    const auto c = static_cast<size_t>(w);
    for (int64_t p = graph.range_begin[c]; p < graph.range_begin[c + 1]; ++p) {
      worker_of[static_cast<size_t>(graph.TaskAt(p))] = w;
    }
  }
  return worker_of;
}

}  // namespace fa::tiling
