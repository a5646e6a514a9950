#include "tiling/sparse/indexer_grad_facts.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

std::string ProblemText(const IndexerGradPlan& plan) {
  const SparseSequences& sequences = plan.sequences;
  PlanText text;
  text.AddLine("%s, %s: %lld sequences, %lld tokens, up to %lld keys of %lld per token, %lld heads of %lld", plan.op,
               Name(plan.dtype), Count(sequences.list.size()), Wide(sequences.tokens),
               Wide(std::min(plan.entries, sequences.max_sk)), Wide(sequences.max_sk), Wide(plan.heads), Wide(plan.d));
  return text.Take();
}

std::string TasksText(const IndexerGradPlan& plan) {
  PlanText text;
  text.AddLine("block: %lld keys: %s", Wide(plan.block_k), plan.reason.c_str());
  text.AddLine("tasks: %lld of tokens, %lld that clear and %lld that write gradients of keys", Wide(plan.sums.units),
               Wide(plan.sums.key_tasks), Wide(plan.sums.key_tasks));
  return text.Take();
}

std::vector<PlanTile> TilesOf(const IndexerGradPlan& plan) {
  std::vector<PlanTile> tiles;
  for (int64_t b = 0; b < std::ssize(plan.sequences.list); ++b) {
    const SparseSequence& sequence = plan.sequences.list[static_cast<size_t>(b)];
    for (int64_t row = 0; row < sequence.sq; row += plan.tokens_per_task) {
      const int64_t end = std::min(row + plan.tokens_per_task, sequence.sq);
      const int64_t keys = std::min(plan.entries, sequence.Limit(plan.sequences.mask, end - 1));
      tiles.push_back({.batch = b,
                       .head_end = plan.heads,
                       .row_begin = row,
                       .row_end = end,
                       .key_end = keys,
                       .cost = core::CeilDiv(keys, plan.block_k)});
    }
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const IndexerGradPlan& plan, const Machine& machine, std::vector<std::string> kernels) {
  const double flops = plan.flops_per_pair * plan.sequences.SelectableKeys(plan.entries, /*block_size=*/1);
  return {.op = plan.op,
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.reason,
          .block_q = plan.tokens_per_task,
          .block_k = plan.block_k,
          .graph = plan.sums.graph,
          .flops = flops,
          .flops_full = flops,
          .flops_visited = flops,
          .load = {},
          .unpredicted = true,
          .problem = ProblemText(plan),
          .tasks = TasksText(plan),
          .loads = {},
          .tiles = [plan] { return TilesOf(plan); }};
}

}  // namespace fa::tiling
