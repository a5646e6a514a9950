#include "tiling/forward/claim_order.h"

#include <algorithm>
#include <numeric>

#include "tiling/forward/pack_order.h"
#include "tiling/partition.h"

namespace fa::tiling {
namespace {

// Returns the order in which items are cut into ranges for the workers. An empty result means that items keep their
// order. If the row blocks of a head have unequal weights (causal), the last block is paired with the first, the last
// but one with the second, and so on. All pairs weigh about the same, so cuts between pairs give equal ranges.
std::vector<int32_t> PairItems(std::span<const HeadTiles> heads, size_t items, int workers) {
  std::vector<int32_t> order;
  if (workers == 1) return order;
  for (const HeadTiles& head : heads) {
    if (!head.uneven_rows) continue;
    if (order.empty()) {
      order.resize(items);
      std::iota(order.begin(), order.end(), 0);
    }
    auto next = order.begin() + head.item_begin;
    for (int64_t low = 0, high = head.row_blocks - 1; low <= high; ++low, --high) {
      for (int64_t first_row = head.item_begin; first_row < head.item_end; first_row += head.row_blocks) {
        *next++ = static_cast<int32_t>(first_row + high);
        if (low < high) *next++ = static_cast<int32_t>(first_row + low);
      }
    }
  }
  return order;
}

// Puts the heavy tiles of a head first inside each range. So the tiles at the end of a range, which other workers may
// steal, are light.
void PutHeavyFirst(std::span<const HeadTiles> heads, std::span<const int64_t> durations, std::span<const int64_t> cuts,
                   std::span<int32_t> order) {
  if (order.empty()) return;
  const auto heavier = [&](int32_t a, int32_t b) {
    const int64_t time_a = durations[static_cast<size_t>(a)], time_b = durations[static_cast<size_t>(b)];
    return time_a != time_b ? time_a > time_b : a < b;
  };
  size_t range = 0;
  for (const HeadTiles& head : heads) {
    for (int64_t begin = head.item_begin; head.uneven_rows && begin < head.item_end;) {
      while (cuts[range + 1] <= begin) ++range;
      const int64_t end = std::min(head.item_end, cuts[range + 1]);
      std::sort(order.begin() + begin, order.begin() + end, heavier);
      begin = end;
    }
  }
}

std::vector<int64_t> CutIntoRanges(std::span<const HeadTiles> heads, std::span<const PackedHead> packed,
                                   std::span<const int32_t> order, std::span<const int64_t> durations,
                                   const Machine& machine) {
  const auto items = static_cast<int64_t>(heads.empty() ? 0 : heads.back().item_end);
  if (machine.workers == 1 || items <= 1) {
    std::vector<int64_t> cuts(static_cast<size_t>(machine.workers) + 1, items);
    cuts.front() = 0;
    return cuts;
  }
  std::vector<int64_t> load_before(static_cast<size_t>(items) + 1, 0);
  for (size_t unit = 0; unit < static_cast<size_t>(items); ++unit) {
    load_before[unit + 1] = durations[order.empty() ? unit : static_cast<size_t>(order[unit])];
  }
  // The time of packing a head is added to its first tile, so no cut separates the two.
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
  std::vector<int32_t> order = PairItems(heads, plan.items.size(), machine.workers);
  std::vector<PackedHead> packed = CutIntoPacks(heads, machine, plan, durations);
  std::vector<int64_t> cuts = CutIntoRanges(heads, packed, order, durations, machine);
  PutHeavyFirst(heads, durations, cuts, order);

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

core::TaskGraph LongestFirst(const ForwardPlan& plan, std::span<const int64_t> durations) {
  const auto items = static_cast<int32_t>(plan.items.size()), packs = static_cast<int32_t>(plan.packs.size());
  core::TaskGraph graph;
  graph.task_count = items + packs + (packs > 0 ? 1 : 0);
  std::vector<int32_t> sorted(static_cast<size_t>(items));
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&durations](int32_t a, int32_t b) {
    return durations[static_cast<size_t>(a)] > durations[static_cast<size_t>(b)];
  });

  graph.order.resize(static_cast<size_t>(graph.task_count - items));
  std::iota(graph.order.begin(), graph.order.end(), items);
  graph.order.insert(graph.order.end(), sorted.begin(), sorted.end());
  graph.range_begin.assign(static_cast<size_t>(plan.graph.workers()) + 1, graph.task_count);
  graph.range_begin[0] = 0;
  graph.shared_claims = true;
  if (packs == 0) return graph;

  graph.earliest_first = true;
  graph.position.resize(graph.order.size());
  for (size_t place = 0; place < graph.order.size(); ++place) {
    graph.position[static_cast<size_t>(graph.order[place])] = static_cast<int32_t>(place);
  }
  const int32_t join = items + packs;
  graph.predecessor_count.assign(graph.order.size(), 0);
  graph.predecessor_count.back() = packs;
  graph.successor_begin.assign(static_cast<size_t>(items) + 1, 0);
  for (int32_t pack = 0; pack < packs; ++pack) {
    graph.successors.push_back(join);
    graph.successor_begin.push_back(std::ssize(graph.successors));
  }
  for (const int32_t item : sorted) {
    if (plan.items[static_cast<size_t>(item)].slot < 0) continue;
    graph.successors.push_back(item);
    graph.predecessor_count[static_cast<size_t>(item)] = 1;
  }
  graph.successor_begin.push_back(std::ssize(graph.successors));
  return graph;
}

}  // namespace fa::tiling
