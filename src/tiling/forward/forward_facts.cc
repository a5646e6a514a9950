#include "tiling/forward/forward_facts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tiling/plan_text.h"
#include "tiling/row_rules.h"

namespace fa::tiling {
namespace {

std::string ProblemText(const char* op, const AttentionProblem& problem) {
  PlanText text;
  text.AddProblem(op, problem);
  return text.Take();
}

std::string TasksText(const AttentionProblem& problem, const ForwardPlan& plan) {
  PlanText text;
  text.AddLine("tile: %lld rows x %lld keys: %s", Wide(plan.shape.block_q), Wide(plan.shape.block_k),
               plan.shape.reason.c_str());
  const size_t joins = static_cast<size_t>(plan.graph.task_count) - plan.items.size() - plan.packs.size();
  text.AddLine("tasks: %lld tiles, %lld packs, %lld joins, %lld edges", Count(plan.items.size()),
               Count(plan.packs.size()), Count(joins), Count(plan.graph.successors.size()));
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
  return text.Take();
}

std::string LoadsText(const ForwardPlan& plan) {
  if (plan.load.empty()) return {};
  PlanText text;
  const double mean = std::accumulate(plan.load.begin(), plan.load.end(), 0.0) / static_cast<double>(plan.load.size());
  const bool listed = plan.graph.shared_claims;
  text.AddLine("load: least %.3f, mean %.3f of the longest%s", *std::min_element(plan.load.begin(), plan.load.end()),
               mean, listed ? "; all workers claim from one list, long tasks first" : " range");
  for (size_t worker = 0; worker < plan.load.size(); ++worker) {
    const int64_t tasks = listed ? std::count(plan.worker_of.begin(), plan.worker_of.end(), static_cast<int>(worker))
                                 : plan.graph.range_begin[worker + 1] - plan.graph.range_begin[worker];
    text.AddLine("  worker %lld: %lld tasks, load %.3f", Count(worker), Wide(tasks), plan.load[worker]);
  }
  return text.Take();
}

std::vector<PlanTile> TilesOf(const ForwardPlan& plan) {
  std::vector<PlanTile> tiles;
  tiles.reserve(plan.items.size());
  const std::vector<int> worker_of = plan.graph.shared_claims ? plan.worker_of : FirstWorkers(plan.graph);
  for (size_t t = 0; t < plan.items.size(); ++t) {
    const ForwardItem& item = plan.items[t];
    tiles.push_back({item.sequence, item.head_kv, item.head_begin, item.head_begin + item.heads, item.row_begin,
                     item.row_end, item.keys.begin, item.keys.end, item.cost, worker_of[t]});
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const char* op, const AttentionProblem& problem, const Machine& machine, const ForwardPlan& plan,
                  std::vector<std::string> kernels) {
  return {.op = op,
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.shape.reason,
          .block_q = plan.shape.block_q,
          .block_k = plan.shape.block_k,
          .graph = plan.graph,
          .flops = plan.flops,
          .flops_full = plan.flops_full,
          .flops_visited = plan.flops_visited,
          .load = plan.load,
          .efficiency = plan.efficiency,
          .problem = ProblemText(op, problem),
          .tasks = TasksText(problem, plan),
          .loads = LoadsText(plan),
          .tiles = [&plan] { return TilesOf(plan); },
          .mask = MaskText(problem.sequences)};
}

}  // namespace fa::tiling
