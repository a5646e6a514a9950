#include "tiling/claim_order.h"

#include <numeric>

#include "tiling/pack_order.h"
#include "tiling/partition.h"

namespace fa::tiling {
namespace {

// Items in claim order, empty = as they stand. Heavy row blocks of a head come first, so that what is left for the end
// of a range, and for thieves, is small. With one worker order is nothing but locality.
std::vector<int32_t> OrderItems(std::span<const HeadTiles> heads, size_t items, int workers) {
  std::vector<int32_t> order;
  if (workers == 1) return order;
  for (const HeadTiles& head : heads) {
    if (!head.later_rows_heavier) continue;
    if (order.empty()) {
      order.resize(items);
      std::iota(order.begin(), order.end(), 0);
    }
    auto next = order.begin() + head.item_begin;
    for (int64_t block = head.row_blocks; block-- > 0;) {
      for (int64_t item = head.item_begin + block; item < head.item_end; item += head.row_blocks) {
        *next++ = static_cast<int32_t>(item);
      }
    }
  }
  return order;
}

std::vector<int64_t> CutIntoRanges(std::span<const HeadTiles> heads, std::span<const PackedHead> packed,
                                   std::span<const int32_t> order, std::span<const int64_t> durations,
                                   const Machine& machine) {
  const auto items = static_cast<int64_t>(heads.empty() ? 0 : heads.back().item_end);
  if (machine.workers == 1) return {0, items};
  std::vector<int64_t> load_before(static_cast<size_t>(items) + 1, 0);
  for (size_t unit = 0; unit < static_cast<size_t>(items); ++unit) {
    load_before[unit + 1] = durations[order.empty() ? unit : static_cast<size_t>(order[unit])];
  }
  // The packs of a head go with its first tile: no cut separates them.
  for (const PackedHead& head : packed) load_before[static_cast<size_t>(head.item_begin) + 1] += head.pack_duration;
  std::partial_sum(load_before.begin(), load_before.end(), load_before.begin());

  std::vector<int64_t> head_begin;
  if (machine.nodes > 1) {
    head_begin.reserve(heads.size() + 1);
    for (const HeadTiles& head : heads) head_begin.push_back(head.item_begin);
    head_begin.push_back(items);
  }
  return PartitionOverNodes(load_before, head_begin, machine.workers, machine.nodes);
}

}  // namespace

void OrderClaims(std::span<const HeadTiles> heads, const Machine& machine, ForwardPlan& plan,
                 std::vector<int64_t>& durations) {
  std::vector<int32_t> order = OrderItems(heads, plan.items.size(), machine.workers);
  std::vector<PackedHead> packed = CutIntoPacks(heads, machine.workers, plan, durations);
  std::vector<int64_t> cuts = CutIntoRanges(heads, packed, order, durations, machine);

  if (packed.empty()) {
    plan.graph.task_count = static_cast<int32_t>(plan.items.size());
    plan.graph.order = std::move(order);
    plan.graph.range_begin = std::move(cuts);
  } else {
    AssignSlots(cuts, packed, plan);
    AddPackEdges(packed, plan, durations);
    OrderWithPacks(heads, packed, order, cuts, plan.graph);
  }
  if (machine.nodes > 1) {
    for (int worker = 0; worker < machine.workers; ++worker) {
      plan.graph.range_node.push_back(static_cast<int16_t>(NodeOfWorker(worker, machine.workers, machine.nodes)));
    }
  }
}

}  // namespace fa::tiling
