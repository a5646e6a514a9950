#include "tiling/backward/backward_facts.h"

#include <algorithm>
#include <utility>

#include "tiling/backward/backward_tiles.h"
#include "tiling/backward/make_backward_plan.h"
#include "tiling/plan_text.h"
#include "tiling/row_rules.h"

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

std::string ProblemText(const AttentionProblem& problem) {
  PlanText text;
  text.AddProblem("backward", problem);
  return text.Take();
}

std::string TasksText(const AttentionProblem& problem, const BackwardPlan& plan) {
  PlanText text;
  text.AddLine("tile: %lld rows x %lld keys: %s", Wide(plan.block_q), Wide(plan.block_k), plan.reason.c_str());
  AddOrder(problem, text);
  const size_t joins = static_cast<size_t>(plan.graph.task_count) - plan.items.size();
  text.AddLine("tasks: %lld tiles, %lld joins, %lld edges, claimed from one list", Count(plan.items.size()),
               Count(joins), Count(plan.graph.successors.size()));
  text.AddLine("in flight: %lld kv heads, of up to %lld rows and %lld keys each%s", Wide(plan.slots),
               Wide(plan.slot_rows), Wide(plan.slot_keys), plan.head_by_head ? ", one query head after the other" : "");
  return text.Take();
}

std::string LoadsText(const BackwardPlan& plan) {
  if (plan.load.empty()) return {};
  PlanText text;
  text.AddLine("load: least %.3f of the whole time", *std::min_element(plan.load.begin(), plan.load.end()));
  for (size_t worker = 0; worker < plan.load.size(); ++worker) {
    text.AddLine("  worker %lld: load %.3f", Count(worker), plan.load[worker]);
  }
  return text.Take();
}

std::vector<PlanTile> TilesOf(const BackwardPlan& plan) {
  std::vector<PlanTile> tiles;
  tiles.reserve(plan.items.size());
  const std::vector<int> worker_of = PredictedWorkers(plan);
  for (size_t t = 0; t < plan.items.size(); ++t) {
    const BackwardItem& item = plan.items[t];
    tiles.push_back({item.sequence, item.head_kv, item.head, item.head + 1, item.row_begin, item.row_end,
                     item.key_begin, item.key_end, item.cost, worker_of[t]});
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const AttentionProblem& problem, const Machine& machine, const BackwardPlan& plan,
                  std::vector<std::string> kernels) {
  return {.op = "backward",
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.reason,
          .block_q = plan.block_q,
          .block_k = plan.block_k,
          .graph = plan.graph,
          .flops = plan.flops,
          .flops_full = plan.flops_full,
          .flops_visited = plan.flops_visited,
          .load = plan.load,
          .efficiency = plan.efficiency,
          .problem = ProblemText(problem),
          .tasks = TasksText(problem, plan),
          .loads = LoadsText(plan),
          .tiles = [&plan] { return TilesOf(plan); },
          .mask = MaskText(problem.sequences)};
}

}  // namespace fa::tiling
