#include "tiling/sparse/sparse_facts.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

/// Returns the part of a plan's text that says which keys of one tensor a token has.
std::string KeysText(SparseMask mask, int64_t entries) {
  if (entries >= 0) return std::to_string(entries) + " entries per token";
  return mask == SparseMask::kNone ? "all" : mask == SparseMask::kBand ? "a window" : "right-down causal";
}

std::string ProblemText(const SparseProblem& sparse, const SparsePlan& plan) {
  PlanText text;
  text.AddProblem(plan.op, sparse.attention);
  std::string rows = sparse.paged ? ", keys in pages" : "";
  if (sparse.quantized) rows += std::string(", rows of ") + Name(*sparse.quantized) + " with scales";
  if (sparse.shared != nullptr) {
    const SharedKeys& keys = *sparse.shared;
    text.AddLine("original keys: %s; compressed keys: %s, one per %lld tokens%s",
                 KeysText(keys.first_mask, keys.first_entries).c_str(),
                 KeysText(keys.second_mask, keys.second_entries).c_str(), Wide(keys.ratio), rows.c_str());
    return text.Take();
  }
  text.AddLine("selection: %lld entries per token, blocks of %lld keys, %s%s%s", Wide(sparse.entries),
               Wide(sparse.block_size), sparse.sequences.mask == SparseMask::kNone ? "no mask" : "right-down causal",
               sparse.has_v ? "" : ", v is k", rows.c_str());
  return text.Take();
}

std::string TasksText(const SparseProblem& sparse, const SparsePlan& plan, const core::TaskGraph& graph) {
  PlanText text;
  text.AddLine("tile: %lld heads x %lld keys: %s", Wide(plan.tile_heads), Wide(plan.block_k), plan.reason.c_str());
  const int64_t token_tasks = plan.token_tasks * plan.head_tasks(sparse.attention.heads);
  text.AddLine("tasks: %lld of %lld tokens and %lld heads, %lld for the sums of keys", Wide(token_tasks),
               Wide(plan.tokens_per_task), Wide(plan.heads_per_task), Wide(graph.task_count - token_tasks));
  return text.Take();
}

std::vector<PlanTile> TilesOf(const SparseProblem& sparse, const SparsePlan& plan) {
  std::vector<PlanTile> tiles;
  const int64_t heads = sparse.attention.heads;
  for (int64_t token = 0; token < sparse.sequences.tokens; ++token) {
    const SparseToken of = sparse.sequences.Token(token);
    const int64_t keys = sparse.KeysAtMost(of);
    for (int64_t head = 0; head < heads; head += plan.heads_per_task) {
      tiles.push_back({.batch = of.sequence,
                       .head_begin = head,
                       .head_end = std::min(head + plan.heads_per_task, heads),
                       .row_begin = of.row,
                       .row_end = of.row + 1,
                       .key_end = keys,
                       .cost = core::CeilDiv(keys, plan.block_k)});
    }
  }
  return tiles;
}

}  // namespace

PlanFacts FactsOf(const SparseProblem& sparse, const Machine& machine, const SparsePlan& plan,
                  const core::TaskGraph& graph, std::vector<std::string> kernels) {
  return {.op = plan.op,
          .machine = machine,
          .kernels = std::move(kernels),
          .reason = plan.reason,
          .block_q = plan.tile_heads,
          .block_k = plan.block_k,
          .graph = graph,
          .flops = plan.flops,
          .flops_full = plan.flops,
          .flops_visited = plan.flops,
          .load = {},
          .unpredicted = true,
          .problem = ProblemText(sparse, plan),
          .tasks = TasksText(sparse, plan, graph),
          .loads = {},
          .tiles = [sparse, &plan] { return TilesOf(sparse, plan); }};
}

}  // namespace fa::tiling
