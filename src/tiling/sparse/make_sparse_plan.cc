#include "tiling/sparse/make_sparse_plan.h"

#include <algorithm>

#include "core/integer.h"
#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// Keys that are gathered at a time. The probabilities of a strip take 24 KiB, which stay in L1. Blocks of 64 keys take
// the same time. With blocks of more than 128 keys, the probabilities would not stay in L1.
constexpr int64_t kBlockK = 128;

// The fewest flops of a task. Claiming a task takes a fraction of a microsecond, and 1e6 flops take some ten
// microseconds.
constexpr double kMinTaskFlops = 1e6;

// A product that reads values in place prefetches the row that lies this many rows ahead. Shared values are columns of
// the keys, which the computation of scores has brought into L2. Values in a tensor of their own come from further
// away. With such values, a Zen 5 runs at 64 % of its peak rate with 32 rows, but at 50 % with 8 rows.
constexpr int64_t kSharedValuesAhead = 8, kOwnValuesAhead = 32;

void OneList(int64_t tasks, int workers, core::TaskGraph& graph) {
  graph.task_count = static_cast<int32_t>(tasks);
  graph.range_begin.assign(static_cast<size_t>(workers) + 1, tasks);
  graph.range_begin[0] = 0;
  graph.shared_claims = true;
}

int64_t TileColumns(const AttentionProblem& problem) { return problem.d + problem.d_rope + problem.dv; }

/// Begins a plan of the forward or the backward, and sets its flops to the flops of the products Q K^T and P V.
SparsePlan Begin(const char* op, const SparseProblem& sparse) {
  const AttentionProblem& problem = sparse.attention;
  SparsePlan plan;
  plan.op = op;
  plan.block_k = kBlockK;
  plan.tile_heads = std::min(kMaxTileHeads, problem.heads);
  plan.heads_per_task = problem.heads;
  plan.flops = 2 * sparse.Pairs() * static_cast<double>(TileColumns(problem));
  plan.reason = "gathered rows of " + std::to_string(plan.block_k) + " keys take " +
                std::to_string(plan.block_k * (problem.d + problem.d_rope) * 4 / 1024) + " KiB of L2; " +
                std::to_string(sparse.sequences.tokens) + " tokens";
  return plan;
}

std::string InPlace(const SparseProblem& sparse) {
  return "few heads read the rows of keys where they lie; " + std::to_string(sparse.sequences.tokens) + " tokens";
}

}  // namespace

SparsePlan MakeSparseForwardPlan(const SparseProblem& sparse, const Machine& machine, bool in_place) {
  SparsePlan plan = Begin(sparse.shared != nullptr ? "shared kv" : "sparse forward", sparse);
  CheckWork(plan.flops, machine.workers);
  const int64_t tokens = sparse.sequences.tokens, heads = sparse.attention.heads;
  if (in_place) {
    plan.reason = InPlace(sparse);
    if (BringsRows(machine)) plan.values_ahead = sparse.has_v ? kOwnValuesAhead : kSharedValuesAhead;
  }
  if (tokens > 0) {
    const double flops_of_token = plan.flops / static_cast<double>(tokens);
    // Twenty tasks per worker balance the load.
    const int64_t most = std::max<int64_t>(tokens / (20 * machine.workers), 1);
    plan.tokens_per_task =
        std::clamp(static_cast<int64_t>(kMinTaskFlops / std::max(flops_of_token, 1.0)), int64_t{1}, most);
    plan.tokens_per_task = std::max(plan.tokens_per_task, CeilDiv(tokens, kMaxTasks));
    // If there are few tokens, the heads of a token are spread over several tasks. A mean over heads needs all heads of
    // a token in one task.
    const int64_t strips = CeilDiv(heads, machine.strip_rows);
    const int64_t parts = std::min(strips, CeilDiv(4 * machine.workers, tokens));
    if (machine.workers > 1 && !sparse.whole_tokens && parts > 1) {
      plan.heads_per_task = core::RoundUp(CeilDiv(heads, parts), 16);
    }
    plan.token_tasks = CeilDiv(tokens, plan.tokens_per_task);
  }
  OneList(plan.token_tasks * plan.head_tasks(heads), machine.workers, plan.graph);
  return plan;
}

SparsePlan MakeSparseBackwardPlan(const SparseProblem& sparse, const Machine& machine, bool in_place, bool gradients) {
  SparsePlan plan = Begin(sparse.shared != nullptr ? "shared kv backward" : "sparse backward", sparse);
  if (in_place) plan.reason = InPlace(sparse);
  const AttentionProblem& problem = sparse.attention;
  // The products are Q K^T, dO V^T, dS K, dS^T Q and P^T dO. Without gradients, Q K^T is the only product.
  const int64_t d = problem.d + problem.d_rope;
  plan.flops = 2 * sparse.Pairs() * static_cast<double>(gradients ? 3 * d + 2 * problem.dv : d);
  CheckWork(plan.flops, machine.workers);
  // Each task has one token. If a task had several, the tasks after it would wait longer for their turn to add to the
  // keys.
  plan.token_tasks = sparse.sequences.tokens;
  return plan;
}

}  // namespace fa::tiling
