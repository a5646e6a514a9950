// This file decides in which slot each packed head lies and when it is packed.
//
// A slot is a place for the panels of one head, and there are at most workers + 1 slots. The claim order is also a
// serial schedule, so the heads of one slot follow each other in that order. Each worker owns a contiguous range of the
// order. If slots were dealt round robin, worker c's first head would wait for a head in the middle of worker c-1's
// range. Hence a worker packs the heads that start in its range into its own slot, one after another. It waits for no
// other worker.
//
// The last head of a range may extend into the next worker's range. The next worker runs these tiles last, after its
// own heads. By that time the head is usually packed. If a head fills the whole range of a worker, that worker has no
// other tiles to run first. So such a head is packed before everything else. It gets the slot of a worker whose whole
// range it fills, because that worker needs no slot for itself.
#include "tiling/forward/pack_order.h"

#include <algorithm>
#include <numeric>

#include "core/integer.h"
#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// The most and the fewest key rows of a pack task. With K and V of D = 128, packing 2048 rows takes some 0.2 ms, and
// more rows would delay the first tile. Smaller packs let more workers help. A task of less than 256 rows would take
// less than 25 us.
constexpr int64_t kMaxPackRows = 2048;
constexpr int64_t kMinPackRows = 256;

int64_t ChoosePackRows(std::span<const HeadTiles> heads, int workers) {
  int64_t rows = 0;
  for (const HeadTiles& head : heads) rows += head.pack_keys.size();
  const int64_t even_rows = CeilDiv(CeilDiv(rows, int64_t{4} * workers), kMinPackRows) * kMinPackRows;
  return workers == 1 ? kMaxPackRows : std::clamp(even_rows, kMinPackRows, kMaxPackRows);
}

// Returns the number of pack tasks and joins. Each packed head has two joins.
double CountTasksOfPacks(std::span<const HeadTiles> heads, int64_t pack_rows) {
  double tasks = 0;
  for (const HeadTiles& head : heads) {
    if (!head.pack_keys.empty()) tasks += static_cast<double>(CeilDiv(head.pack_keys.size(), pack_rows)) + 2;
  }
  return tasks;
}

// Returns the predicted time of packing `rows` rows. The unit, as in TileWork::weight, is the time of one strip with
// one key: some 0.14 us at d = dv = 128 and 117 GFLOP/s. Packing a row of K and a row of V writes 1 KiB, which takes
// 0.1 us at 10 GB/s. So the two rows count as one unit together.
int64_t PackDuration(int64_t rows, const ForwardPlan& plan) {
  return plan.pack_k && plan.pack_v ? rows : CeilDiv(rows, 2);
}

// Returns whether the head's tiles begin in the range of an earlier worker and fill the whole range of a later worker.
bool FillsARange(const PackedHead& head, std::span<const int64_t> cuts, size_t worker) {
  for (size_t next = worker + 1; next + 1 < cuts.size() && cuts[next + 1] <= head.item_end; ++next) {
    if (cuts[next] < cuts[next + 1]) return true;
  }
  return false;
}

}  // namespace

std::vector<PackedHead> CutIntoPacks(std::span<const HeadTiles> heads, const Machine& machine, ForwardPlan& plan,
                                     std::vector<int64_t>& durations) {
  std::vector<PackedHead> packed;
  const int64_t pack_rows = ChoosePackRows(heads, machine.workers);
  CheckTasks(static_cast<double>(plan.items.size()) + CountTasksOfPacks(heads, pack_rows), machine);
  for (size_t h = 0; h < heads.size(); ++h) {
    const HeadTiles& head = heads[h];
    if (head.pack_keys.empty()) continue;
    PackedHead entry{.head = static_cast<int64_t>(h), .item_begin = head.item_begin, .item_end = head.item_end};
    entry.pack_begin = std::ssize(plan.packs);
    const ForwardItem& item = plan.items[static_cast<size_t>(head.item_begin)];
    for (int64_t row = head.pack_keys.begin; row < head.pack_keys.end; row += pack_rows) {
      const int64_t row_end = std::min(row + pack_rows, head.pack_keys.end);
      plan.packs.push_back(
          {.sequence = item.sequence, .head_kv = item.head_kv, .row_begin = row, .row_end = row_end, .slot = -1});
      durations.push_back(PackDuration(row_end - row, plan));
      entry.pack_duration += durations.back();
    }
    entry.pack_end = std::ssize(plan.packs);
    packed.push_back(entry);
  }
  return packed;
}

void AssignSlots(std::span<const int64_t> cuts, std::span<PackedHead> packed, ForwardPlan& plan) {
  const size_t workers = cuts.size() - 1;
  const bool own_slots = packed.size() <= workers + 1;
  int32_t slots = 0;
  int64_t last_of_worker = -1;  // the packed head that used the worker's slot last
  size_t worker = 0;
  for (size_t p = 0; p < packed.size(); ++p) {
    PackedHead& head = packed[p];
    while (cuts[worker + 1] <= head.item_begin) {
      ++worker;
      last_of_worker = -1;
    }
    const bool alone = own_slots || FillsARange(head, cuts, worker);
    head.slot_is_free = alone || last_of_worker < 0;
    if (head.slot_is_free) {
      head.slot = slots++;
    } else {
      PackedHead& before = packed[static_cast<size_t>(last_of_worker)];
      head.slot = before.slot;
      before.successor = static_cast<int64_t>(p);
    }
    if (!alone) last_of_worker = static_cast<int64_t>(p);
    for (int64_t pack = head.pack_begin; pack < head.pack_end; ++pack) {
      plan.packs[static_cast<size_t>(pack)].slot = head.slot;
    }
    for (int64_t item = head.item_begin; item < head.item_end; ++item) {
      plan.items[static_cast<size_t>(item)].slot = head.slot;
    }
  }
  plan.kv_slots = slots;
}

void AddPackEdges(std::span<PackedHead> packed, ForwardPlan& plan, std::vector<int64_t>& durations) {
  const auto items = static_cast<int32_t>(plan.items.size());
  int32_t join = items + static_cast<int32_t>(plan.packs.size());
  for (PackedHead& head : packed) {
    head.join_in = join++;
    if (head.successor >= 0) head.join_out = join++;
  }
  core::TaskGraph& graph = plan.graph;
  graph.task_count = join;
  durations.resize(static_cast<size_t>(join), 0);
  graph.predecessor_count.assign(static_cast<size_t>(join), 0);
  graph.successor_begin.reserve(static_cast<size_t>(join) + 1);
  graph.successor_begin.push_back(0);

  const auto add_edge = [&graph](int64_t to) {
    graph.successors.push_back(static_cast<int32_t>(to));
    ++graph.predecessor_count[static_cast<size_t>(to)];
  };
  // The loops below add the successors of each task. They go in the order of task ids (tiles, packs, joins), because
  // the graph stores the lists in that order.
  const auto end_task = [&graph] { graph.successor_begin.push_back(std::ssize(graph.successors)); };
  auto owner = packed.begin();
  for (int64_t item = 0; item < items; ++item) {
    while (owner != packed.end() && owner->item_end <= item) ++owner;
    if (owner != packed.end() && owner->item_begin <= item && owner->join_out >= 0) add_edge(owner->join_out);
    end_task();
  }
  for (const PackedHead& head : packed) {
    for (int64_t pack = head.pack_begin; pack < head.pack_end; ++pack) {
      add_edge(head.join_in);
      end_task();
    }
  }
  std::vector<int64_t> tiles;
  for (const PackedHead& head : packed) {
    // If workers have claimed the tiles before the join completes, the join releases them in this order, the heavy ones
    // first.
    tiles.resize(static_cast<size_t>(head.item_end - head.item_begin));
    std::iota(tiles.begin(), tiles.end(), head.item_begin);
    std::sort(tiles.begin(), tiles.end(), [&durations](int64_t a, int64_t b) {
      const int64_t time_a = durations[static_cast<size_t>(a)], time_b = durations[static_cast<size_t>(b)];
      return time_a != time_b ? time_a > time_b : a < b;
    });
    for (const int64_t tile : tiles) add_edge(tile);
    end_task();
    if (head.join_out < 0) continue;
    const PackedHead& next = packed[static_cast<size_t>(head.successor)];
    for (int64_t pack = next.pack_begin; pack < next.pack_end; ++pack) add_edge(items + pack);
    end_task();
  }
}

void OrderWithPacks(std::span<const HeadTiles> heads, std::span<const PackedHead> packed,
                    std::span<const int32_t> item_order, std::span<const int64_t> cuts, core::TaskGraph& graph) {
  const int64_t items = heads.back().item_end;
  graph.order.reserve(static_cast<size_t>(graph.task_count));
  const auto claim_items = [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      graph.order.push_back(item_order.empty() ? static_cast<int32_t>(unit) : item_order[static_cast<size_t>(unit)]);
    }
  };
  const auto claim_packs = [&](const PackedHead& head) {
    for (int64_t pack = head.pack_begin; pack < head.pack_end; ++pack) {
      graph.order.push_back(static_cast<int32_t>(items + pack));
    }
    graph.order.push_back(head.join_in);
  };

  graph.range_begin.push_back(0);
  auto head = heads.begin();
  auto next_packed = packed.begin();
  for (size_t worker = 0; worker + 1 < cuts.size(); ++worker) {
    const int64_t begin = cuts[worker], end = cuts[worker + 1];
    // The tiles at the beginning of this range that belong to a head of an earlier range are claimed last.
    const int64_t rest_end = std::min(end, head == heads.begin() ? begin : std::max(begin, (head - 1)->item_end));

    for (auto p = next_packed; p != packed.end() && p->item_begin < end; ++p) {
      if (p->slot_is_free) claim_packs(*p);
    }
    for (; head != heads.end() && head->item_begin < end; ++head) {
      const bool is_packed = next_packed != packed.end() && next_packed->item_begin == head->item_begin;
      if (is_packed && !next_packed->slot_is_free) claim_packs(*next_packed);
      claim_items(head->item_begin, std::min(head->item_end, end));
      if (is_packed && next_packed->join_out >= 0) graph.order.push_back(next_packed->join_out);
      if (is_packed) ++next_packed;
    }
    claim_items(begin, rest_end);
    graph.range_begin.push_back(std::ssize(graph.order));
  }
}

}  // namespace fa::tiling
