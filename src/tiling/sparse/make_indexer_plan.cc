#include "tiling/sparse/make_indexer_plan.h"

#include <algorithm>

#include "core/integer.h"
#include "tiling/partition.h"
#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

// The fewest tokens of a group. The group's queries, which are read once per strip, stay in half of L2.
constexpr int64_t kLeastGroup = 4;

// With this number of tasks per worker, the last tasks leave no worker idle for long.
constexpr int64_t kTasksPerWorker = 4;

// The fewest keys of a part when keys are cut. The task of a shorter part would be nearly all overhead.
constexpr int64_t kLeastKeys = 512;

// The cost that a selection has for each score. The unit is the cost of one product of a key with one head's query. A
// selection reads each score ten times.
constexpr double kRowCost = 10;

// Loads are scaled to a sum below this, so that sums and products with worker counts stay in 64 bits.
constexpr double kMaxTotalLoad = 0x1p50;

int64_t Groups(const SparseSequences& sequences, int64_t group) {
  int64_t groups = 0;
  for (const SparseSequence& sequence : sequences.list) groups += core::CeilDiv(sequence.sq, group);
  return groups;
}

/// Adds the items of all groups of tokens. The keys that a group may see are cut into at most `parts` parts, which
/// begin at multiples of `width`.
void AddItems(const SparseSequences& sequences, int64_t group, int64_t parts, int64_t width, IndexerPlan& plan) {
  for (size_t b = 0; b < sequences.list.size(); ++b) {
    const SparseSequence& sequence = sequences.list[b];
    for (int64_t row = 0; row < sequence.sq; row += group) {
      const Interval rows{row, std::min(row + group, sequence.sq)};
      const int64_t keys = sequence.Limit(sequences.mask, rows.end - 1);
      const int64_t share = std::max(core::CeilDiv(keys, parts), std::min(keys, kLeastKeys));
      const int64_t step = std::max(core::RoundUp(share, width), width);
      int64_t key = 0;
      do {
        plan.items.push_back(
            {static_cast<int64_t>(b), rows, {key, std::min(key + step, keys)}, sequence.first_token + row});
        key += step;
      } while (key < keys);
    }
  }
}

/// Adds one task per token, which runs after the items that score the token's keys.
void AddRows(const SparseSequences& sequences, IndexerPlan& plan) {
  core::TaskGraph& graph = plan.graph;
  const auto items = static_cast<int32_t>(plan.items.size());
  graph.task_count = items + static_cast<int32_t>(sequences.tokens);
  graph.predecessor_count.assign(static_cast<size_t>(graph.task_count), 0);
  for (const IndexerItem& item : plan.items) {
    graph.successor_begin.push_back(static_cast<int64_t>(graph.successors.size()));
    for (int64_t i = 0; i < item.rows.end - item.rows.begin; ++i) {
      const auto task = items + static_cast<int32_t>(item.first_token + i);
      graph.successors.push_back(task);
      ++graph.predecessor_count[static_cast<size_t>(task)];
    }
  }
  graph.successor_begin.resize(static_cast<size_t>(graph.task_count) + 1, std::ssize(graph.successors));
}

double Pairs(const IndexerItem& item) {
  return static_cast<double>(item.keys.size()) * static_cast<double>(item.rows.size());
}

void Share(int64_t heads, int64_t workers, IndexerPlan& plan) {
  std::vector<int64_t> load_before{0};
  const auto add = [&](int64_t load) { load_before.push_back(load_before.back() + load); };
  const double of_pair = static_cast<double>(heads) + (plan.cut ? 0.0 : kRowCost);
  double total = 0;
  for (const IndexerItem& item : plan.items) total += of_pair * Pairs(item);
  const double scaled = of_pair / std::max(total / kMaxTotalLoad, 1.0);
  for (const IndexerItem& item : plan.items) add(1 + static_cast<int64_t>(scaled * Pairs(item)));
  while (std::ssize(load_before) <= plan.graph.task_count) add(1);
  const std::vector<int64_t> shares(static_cast<size_t>(workers), 1);
  plan.graph.range_begin = PartitionByLoad(load_before, shares);
  double longest = 0;
  for (size_t w = 0; w < shares.size(); ++w) {
    const auto at = [&](size_t i) { return load_before[static_cast<size_t>(plan.graph.range_begin[i])]; };
    plan.load.push_back(static_cast<double>(at(w + 1) - at(w)));
    longest = std::max(longest, plan.load.back());
  }
  for (double& load : plan.load) load = longest > 0 ? load / longest : 1;
}

}  // namespace

IndexerPlan MakeIndexerPlan(const SparseSequences& sequences, int64_t heads, int64_t d, int64_t width,
                            const Machine& machine) {
  IndexerPlan plan;
  const double pair = 2.0 * static_cast<double>(heads) * static_cast<double>(d);
  plan.flops = pair * sequences.SelectableKeys(std::max<int64_t>(sequences.max_sk, 1), /*block_size=*/1);
  CheckWork(plan.flops, machine.workers);
  const int64_t token_bytes = heads * d * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = kTasksPerWorker * machine.workers;
  plan.group = std::clamp(machine.l2_bytes / 2 / token_bytes, kLeastGroup, kMostIndexerGroup);
  while (plan.group > kLeastGroup && Groups(sequences, plan.group) < wanted) plan.group /= 2;
  const int64_t groups = Groups(sequences, plan.group);
  plan.cut = machine.workers > 1 && groups > 0 && groups < wanted && sequences.max_sk > kLeastKeys;
  const int64_t parts = plan.cut ? core::CeilDiv(wanted, groups) : 1;
  CheckTasks(
      static_cast<double>(groups) * static_cast<double>(parts) + static_cast<double>(plan.cut ? sequences.tokens : 0),
      machine);
  AddItems(sequences, plan.group, parts, width, plan);
  plan.graph.task_count = static_cast<int32_t>(plan.items.size());
  if (plan.cut) AddRows(sequences, plan);
  Share(heads, machine.workers, plan);

  for (const SparseSequence& sequence : sequences.list) {
    plan.flops_full += pair * static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
  }
  plan.flops_visited = plan.flops;
  plan.reason = plan.cut ? "too few tokens for the workers: keys are cut, one task per token takes its row"
                         : "keys are packed once per group of tokens, whose queries stay in L2";
  return plan;
}

}  // namespace fa::tiling
