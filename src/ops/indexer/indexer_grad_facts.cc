#include "ops/indexer/indexer_grad_facts.h"

#include <algorithm>

#include "tiling/plan_text.h"

namespace fa::ops {

using tiling::Count;
using tiling::Wide;

PlanInfo InfoOf(const IndexerGradFacts& facts) {
  PlanInfo info;
  info.op = facts.op;
  info.isa = Name(facts.machine.isa);
  info.kernels = facts.kernels;
  info.reason = facts.reason;
  info.block_q = facts.tokens_per_task;
  info.block_k = facts.block_k;
  info.tasks = facts.tasks.graph().task_count;
  info.edges = std::ssize(facts.tasks.graph().successors);
  info.workers = facts.tasks.graph().workers();
  info.workspace_bytes = facts.workspace.total_bytes();
  info.efficiency = 1;
  const SparseSequences& sequences = facts.shape.sequences;
  info.flops = facts.flops_per_pair * sequences.SelectableKeys(facts.entries, /*block_size=*/1);
  for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
    const SparseSequence& sequence = sequences.list[static_cast<size_t>(b)];
    for (int64_t row = 0; row < sequence.sq; row += facts.tokens_per_task) {
      const int64_t end = std::min(row + facts.tokens_per_task, sequence.sq);
      const int64_t keys = std::min(facts.entries, sequence.Limit(sequences.mask, end - 1));
      info.tiles.push_back({.batch = b,
                            .head_end = facts.shape.heads,
                            .row_begin = row,
                            .row_end = end,
                            .key_end = keys,
                            .cost = (keys + facts.block_k - 1) / facts.block_k});
    }
  }
  info.flops_full = info.flops_visited = info.flops;
  return info;
}

std::string Describe(const IndexerGradFacts& facts) {
  const IndexerShape& shape = facts.shape;
  const PlanInfo info = InfoOf(facts);
  tiling::PlanText text;
  text.AddLine("%s, %s: %lld sequences, %lld tokens, up to %lld keys of %lld per token, %lld heads of %lld", facts.op,
               Name(shape.dtype), Count(shape.sequences.list.size()), Wide(shape.sequences.tokens),
               Wide(std::min(facts.entries, shape.sequences.max_sk)), Wide(shape.sequences.max_sk), Wide(shape.heads),
               Wide(shape.d));
  text.AddKernels(facts.machine, facts.kernels);
  text.AddLine("block: %lld keys: %s", Wide(facts.block_k), facts.reason.c_str());
  text.AddLine("tasks: %lld of tokens, %lld that clear and %lld that write gradients of keys",
               Wide(facts.tasks.units()), Wide(facts.tasks.key_tasks()), Wide(facts.tasks.key_tasks()));
  text.AddFlops(info.flops, info.flops_full, info.flops_visited);
  text.AddWorkspace(facts.workspace);
  text.AddLine("workers: %d on %d NUMA nodes, claiming from one list", facts.machine.workers, facts.machine.nodes);
  return text.Take();
}

}  // namespace fa::ops
