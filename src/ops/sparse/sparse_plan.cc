#include "ops/sparse/sparse_plan.h"

#include <algorithm>

#include "core/integer.h"
#include "tiling/plan_text.h"

namespace fa::ops {
namespace {

using core::CeilDiv;
using tiling::Count;
using tiling::Wide;

// Gathered rows of K at D = 512 + 64 take 295 KiB in f32, the probabilities of a strip 24 KiB, which stay in L1. 64
// keys take as long, measured, forward and backward; more would not stay in L1.
constexpr int64_t kBlockK = 128;

// The heads of a tile share its gathered keys. 144 are whole strips of 16, 24 and 48 lanes; their Q and O stay in L2.
constexpr int64_t kTileHeads = 144;

// Claiming a task takes a fraction of a microsecond; 1e6 flops are some ten.
constexpr double kMinTaskFlops = 1e6;

// Task ids are 32-bit.
constexpr int64_t kMaxTasks = int64_t{1} << 30;

void OneList(int64_t tasks, int workers, core::TaskGraph& graph) {
  graph.task_count = static_cast<int32_t>(tasks);
  graph.range_begin.assign(static_cast<size_t>(workers) + 1, tasks);
  graph.range_begin[0] = 0;
  graph.shared_claims = true;
}

int64_t TileColumns(const tiling::AttentionProblem& problem) { return problem.d + problem.d_rope + problem.dv; }

/// What both directions share; flops of one product pass.
SparsePlan Begin(const char* op, const BoundSparse& bound) {
  const auto& problem = bound.attention.problem;
  SparsePlan plan;
  plan.op = op;
  plan.block_k = kBlockK;
  plan.tile_heads = std::min(kTileHeads, problem.heads);
  plan.heads_per_task = problem.heads;
  plan.flops = 2 * bound.Pairs() * static_cast<double>(TileColumns(problem));
  plan.reason = "gathered rows of " + std::to_string(plan.block_k) + " keys take " +
                std::to_string(plan.block_k * (problem.d + problem.d_rope) * 4 / 1024) + " KiB of L2; " +
                std::to_string(bound.sequences.tokens) + " tokens";
  return plan;
}

}  // namespace

SparsePlan MakeSparseForwardPlan(const BoundSparse& bound, const tiling::Machine& machine, bool in_place) {
  SparsePlan plan = Begin("sparse forward", bound);
  const int64_t tokens = bound.sequences.tokens, heads = bound.attention.problem.heads;
  if (in_place) plan.reason = "few heads read the rows of keys where they lie; " + std::to_string(tokens) + " tokens";
  if (tokens > 0) {
    const double flops_of_token = plan.flops / static_cast<double>(tokens);
    // Twenty tasks per worker balance the load.
    const int64_t most = std::max<int64_t>(tokens / (20 * machine.workers), 1);
    plan.tokens_per_task =
        std::clamp(static_cast<int64_t>(kMinTaskFlops / std::max(flops_of_token, 1.0)), int64_t{1}, most);
    plan.tokens_per_task = std::max(plan.tokens_per_task, CeilDiv(tokens, kMaxTasks));
    // Few tokens: their heads go to several workers. A mean over heads wants them in one task.
    const int64_t strips = CeilDiv(heads, machine.strip_rows);
    const int64_t parts = std::min(strips, CeilDiv(4 * machine.workers, tokens));
    if (machine.workers > 1 && !bound.has_mean && parts > 1) {
      plan.heads_per_task = CeilDiv(CeilDiv(heads, parts), 16) * 16;
    }
    plan.token_tasks = CeilDiv(tokens, plan.tokens_per_task);
  }
  OneList(plan.token_tasks * plan.head_tasks(heads), machine.workers, plan.graph);
  return plan;
}

SparsePlan MakeSparseBackwardPlan(const BoundSparse& bound) {
  SparsePlan plan = Begin("sparse backward", bound);
  const auto& problem = bound.attention.problem;
  // Q K^T, dO V^T, dS K, dS^T Q, P^T dO.
  plan.flops = 2 * bound.Pairs() * static_cast<double>(3 * (problem.d + problem.d_rope) + 2 * problem.dv);
  // One token per task: a task of several tokens would hold up the tokens after it.
  plan.token_tasks = bound.sequences.tokens;
  return plan;
}

const core::kernels::StripKernels* FewHeads(const core::kernels::KernelTable& table, int64_t heads) {
  if (const core::kernels::StripKernels* few = table.ForFewRows(heads); few != nullptr) return few;
  if (table.row_state == nullptr || heads > table.narrowest().width) return nullptr;
  return &table.WithRowState(table.narrowest());
}

bool ReadsKeysInPlace(const core::kernels::KernelTable& table, int64_t heads) {
  const core::kernels::StripKernels* few = FewHeads(table, heads);
  return few != nullptr && few->any_dtype;
}

std::vector<std::string> SparseKernelNames(const core::kernels::KernelTable& table, const SparsePlan& plan,
                                           int64_t heads, bool few) {
  if (few && FewHeads(table, heads) != nullptr) return {FewHeads(table, heads)->name};
  std::vector<std::string> names;
  for (int64_t left = std::min(plan.tile_heads, plan.heads_per_task); left > 0;) {
    const core::kernels::StripKernels& strip = table.ForRows(left);
    if (std::find(names.begin(), names.end(), strip.name) == names.end()) names.emplace_back(strip.name);
    left -= strip.rows;
  }
  return names;
}

PlanInfo InfoOf(const SparsePlan& plan, const core::TaskGraph& graph, const BoundSparse& bound,
                const tiling::WorkspacePlan& workspace, std::vector<std::string> kernels, Isa isa) {
  PlanInfo info;
  info.op = plan.op;
  info.isa = Name(isa);
  info.kernels = std::move(kernels);
  info.reason = plan.reason;
  info.block_q = plan.tile_heads;
  info.block_k = plan.block_k;
  info.tasks = graph.task_count;
  info.edges = std::ssize(graph.successors);
  info.workers = graph.workers();
  info.flops = info.flops_full = info.flops_visited = plan.flops;
  info.workspace_bytes = workspace.total_bytes();
  info.efficiency = 1;
  const int64_t heads = bound.attention.problem.heads;
  for (int64_t token = 0; token < bound.sequences.tokens; ++token) {
    const SparseToken of = bound.sequences.Token(token);
    const int64_t keys = bound.KeysAtMost(of);
    for (int64_t head = 0; head < heads; head += plan.heads_per_task) {
      info.tiles.push_back({.batch = of.sequence,
                            .head_begin = head,
                            .head_end = std::min(head + plan.heads_per_task, heads),
                            .row_begin = of.row,
                            .row_end = of.row + 1,
                            .key_end = keys,
                            .cost = CeilDiv(keys, plan.block_k)});
    }
  }
  return info;
}

std::string DescribeSparse(const SparsePlan& plan, const core::TaskGraph& graph, const BoundSparse& bound,
                           const tiling::Machine& machine, const tiling::WorkspacePlan& workspace,
                           const std::vector<std::string>& kernels) {
  tiling::PlanText text;
  text.AddProblem(plan.op, bound.attention.problem);
  text.AddLine("selection: %lld entries per token, blocks of %lld keys, %s%s%s", Wide(bound.lists.entries),
               Wide(bound.lists.block_size),
               bound.sequences.mask == SparseMask::kNone ? "no mask" : "right-down causal",
               bound.has_v ? "" : ", v is k", bound.paged ? ", keys in pages" : "");
  text.AddKernels(machine, kernels);
  text.AddLine("tile: %lld heads x %lld keys: %s", Wide(plan.tile_heads), Wide(plan.block_k), plan.reason.c_str());
  const int64_t token_tasks = plan.token_tasks * plan.head_tasks(bound.attention.problem.heads);
  text.AddLine("tasks: %lld of %lld tokens and %lld heads, %lld for the sums of keys", Wide(token_tasks),
               Wide(plan.tokens_per_task), Wide(plan.heads_per_task), Wide(graph.task_count - token_tasks));
  text.AddFlops(plan.flops, plan.flops, plan.flops);
  text.AddWorkspace(workspace);
  text.AddLine("workers: %d on %d NUMA nodes, claiming from one list", machine.workers, machine.nodes);
  return text.Take();
}

}  // namespace fa::ops
