#include "tiling/sparse/indexer_facts.h"

#include <utility>

#include "core/integer.h"
#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

std::string ProblemText(const IndexerSizes& sizes, const SparseSequences& sequences) {
  PlanText text;
  text.AddLine("%s, %s: %lld sequences, %lld tokens, up to %lld keys, %lld heads of %lld, %s", sizes.op,
               Name(sizes.dtype), Count(sequences.list.size()), Wide(sequences.tokens), Wide(sequences.max_sk),
               Wide(sizes.heads), Wide(sizes.d), sizes.result.c_str());
  return text.Take();
}

std::string TasksText(const IndexerPlan& plan) {
  PlanText text;
  text.AddLine("group: %lld tokens: %s", Wide(plan.group), plan.reason.c_str());
  text.AddLine("tasks: %lld of scores, %lld of whole rows, %lld edges", Count(plan.items.size()),
               Wide(plan.graph.task_count - std::ssize(plan.items)), Count(plan.graph.successors.size()));
  return text.Take();
}

std::vector<PlanTile> TilesOf(const IndexerSizes& sizes, const IndexerPlan& plan) {
  std::vector<PlanTile> tiles;
  tiles.reserve(plan.items.size());
  const std::vector<int> worker_of = FirstWorkers(plan.graph);
  for (size_t t = 0; t < plan.items.size(); ++t) {
    const IndexerItem& item = plan.items[t];
    const int64_t blocks = core::CeilDiv(item.keys.size(), sizes.key_width);
    tiles.push_back({item.sequence, 0, 0, sizes.heads, item.rows.begin, item.rows.end, item.keys.begin, item.keys.end,
                     blocks, worker_of[t]});
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const IndexerSizes& sizes, const SparseSequences& sequences, const Machine& machine,
                  const IndexerPlan& plan, std::vector<std::string> kernels) {
  return {.op = sizes.op,
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.reason,
          .block_q = plan.group,
          .block_k = sizes.key_width,
          .graph = plan.graph,
          .flops = plan.flops,
          .flops_full = plan.flops_full,
          .flops_visited = plan.flops_visited,
          .load = plan.load,
          .efficiency = MeanLoad(plan.load),
          .problem = ProblemText(sizes, sequences),
          .tasks = TasksText(plan),
          .loads = {},
          .tiles = [sizes, &plan] { return TilesOf(sizes, plan); }};
}

}  // namespace fa::tiling
