#include "tiling/sparse/indexer_grad_facts.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

std::string ProblemText(const IndexerGradProblem& problem, const IndexerGradPlan& plan) {
  const SparseSequences& sequences = problem.sequences;
  PlanText text;
  text.AddLine("%s, %s: %lld sequences, %lld tokens, up to %lld keys of %lld per token, %lld heads of %lld", plan.op,
               Name(problem.dtype), Count(sequences.list.size()), Wide(sequences.tokens),
               Wide(std::min(problem.entries, sequences.max_sk)), Wide(sequences.max_sk), Wide(problem.heads),
               Wide(problem.d));
  return text.Take();
}

std::string TasksText(const IndexerGradPlan& plan, const KeySumPlan& sums) {
  PlanText text;
  text.AddLine("block: %lld keys: %s", Wide(plan.block_k), plan.reason.c_str());
  text.AddLine("tasks: %lld of tokens, %lld that clear and %lld that write gradients of keys", Wide(sums.units),
               Wide(sums.key_tasks), Wide(sums.key_tasks));
  return text.Take();
}

std::vector<PlanTile> TilesOf(const IndexerGradProblem& problem, const IndexerGradPlan& plan) {
  std::vector<PlanTile> tiles;
  for (int64_t b = 0; b < std::ssize(problem.sequences.list); ++b) {
    const SparseSequence& sequence = problem.sequences.list[static_cast<size_t>(b)];
    for (int64_t row = 0; row < sequence.sq; row += plan.tokens_per_task) {
      const int64_t end = std::min(row + plan.tokens_per_task, sequence.sq);
      const int64_t keys = std::min(problem.entries, sequence.Limit(problem.sequences.mask, end - 1));
      tiles.push_back({.batch = b,
                       .head_end = problem.heads,
                       .row_begin = row,
                       .row_end = end,
                       .key_end = keys,
                       .cost = core::CeilDiv(keys, plan.block_k)});
    }
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const IndexerGradProblem& problem, const Machine& machine, const IndexerGradPlan& plan,
                  const KeySumPlan& sums, std::vector<std::string> kernels) {
  return {.op = plan.op,
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.reason,
          .block_q = plan.tokens_per_task,
          .block_k = plan.block_k,
          .graph = sums.graph,
          .flops = plan.flops,
          .flops_full = plan.flops,
          .flops_visited = plan.flops,
          .load = {},
          .unpredicted = true,
          .problem = ProblemText(problem, plan),
          .tasks = TasksText(plan, sums),
          .loads = {},
          .tiles = [problem, &plan] { return TilesOf(problem, plan); }};
}

}  // namespace fa::tiling
