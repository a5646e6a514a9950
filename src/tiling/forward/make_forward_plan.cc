// This file plans the dense forward. An item is a tile with the keys that its rows must visit. As in the NPU's
// operator, items are ordered by (sequence, kv head, query head, row block), and workers get contiguous ranges of
// items. The ranges have about equal predicted times.
#include "tiling/forward/make_forward_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "core/integer.h"
#include "core/saturating.h"
#include "tiling/forward/claim_order.h"
#include "tiling/forward/key_cut.h"
#include "tiling/plan_limits.h"
#include "tiling/row_cut.h"
#include "tiling/simulate.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// The fewest strips of a head for which the head is packed. Converting all keys of the head costs about as much as the
// products of one strip (see PackDuration). So packing them once, instead of converting them in every tile, pays if a
// few tiles or more read them.
constexpr int64_t kPackStrips = 8;
// Packs of f32 begin at a multiple of this number of rows, which is kMostPairGroup, the largest group of pair_rows.
constexpr int64_t kPackStep = 32;

// Ranges with at least this predicted efficiency are kept. Otherwise one list for all workers is tried.
constexpr double kEvenRanges = 0.9;

// Predicted times are scaled to a sum below this, so that sums and products with worker counts stay in 64 bits.
constexpr double kMaxTotalDuration = double{1LL << 50};

/// Makes the items and their predicted times. Row blocks are measured once per sequence, not once per head.
class ItemMaker {
 public:
  ItemMaker(const AttentionProblem& problem, const Machine& machine, ForwardPlan& plan)
      : problem_(problem), machine_(machine), strip_rows_(machine.strip_rows), plan_(plan) {}

  void MakeAll() {
    Reserve();
    for (size_t s = 0; s < problem_.sequences.size(); ++s) {
      if (problem_.sequences[s].sq > 0) AddSequence(static_cast<int64_t>(s), problem_.sequences[s]);
    }
    plan_.pack_k = plan_.slot_rows > 0 && !problem_.k_in_place;
    plan_.pack_v = plan_.slot_rows > 0 && !problem_.v_in_place;
    plan_.brings_rows = BringsRows(machine_);
  }

  std::vector<HeadTiles> heads;
  std::vector<int64_t> durations;

 private:
  [[nodiscard]] RowCut Cut(const Sequence& sequence) const {
    return CutRows(sequence.sq, problem_.group(), plan_.shape.block_q, strip_rows_);
  }

  [[nodiscard]] int64_t PartKeys(const Sequence& sequence) const {
    return problem_.whole_rows ? std::max<int64_t>(sequence.sk, 1) : KeysOfAPart(sequence.rule.sq, sequence.sk);
  }

  [[nodiscard]] double FlopsPerPair() const {
    return 2 * static_cast<double>(problem_.d + problem_.d_rope + problem_.dv);
  }

  // Returns a lower bound for the number of states of the tiles of one kv head. In every chunk of heads, each part of
  // the keys is visited by some row block. Only a row block that visits a single part needs no state.
  [[nodiscard]] int64_t FewestStates(const Sequence& sequence, const RowCut& cut) const {
    const Interval keys = sequence.rule.KeysOfRows({0, sequence.sq});
    if (keys.empty()) return 0;
    const int64_t part_keys = PartKeys(sequence);
    const int64_t parts = CeilDiv(keys.end, part_keys) - keys.begin / part_keys;
    return cut.head_chunks * std::max<int64_t>(parts - cut.row_blocks, 0);
  }

  void Reserve() {
    double items = 0, states = 0, pairs = 0;
    size_t sequences = 0;
    const auto heads_kv = static_cast<double>(problem_.heads_kv);
    for (const Sequence& sequence : problem_.sequences) {
      if (sequence.sq == 0) continue;
      const RowCut cut = Cut(sequence);
      const int64_t parts = CeilDiv(sequence.sk, PartKeys(sequence));
      items += heads_kv * static_cast<double>(cut.tiles()) * static_cast<double>(std::max<int64_t>(parts, 1));
      states += heads_kv * static_cast<double>(FewestStates(sequence, cut));
      pairs += static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
      ++sequences;
    }
    CheckTasks(items, machine_);
    CheckWork(FlopsPerPair() * static_cast<double>(problem_.heads) * pairs, machine_.workers);
    CheckWorkspace(states * static_cast<double>(kFewestStateLanes * problem_.dv) * sizeof(float), machine_);
    plan_.items.reserve(static_cast<size_t>(items));
    durations.reserve(static_cast<size_t>(items));
    heads.reserve(sequences * static_cast<size_t>(problem_.heads_kv));
  }

  void Measure(const Sequence& sequence) {
    if (measured_ == sequence.rule) return;
    measured_ = sequence.rule;
    cut_ = Cut(sequence);
    blocks_.clear();
    for (int64_t row = 0; row < sequence.sq; row += cut_.rows) {
      blocks_.push_back(MeasureTile(sequence.rule, {row, std::min(row + cut_.rows, sequence.sq)}, cut_.heads,
                                    strip_rows_, plan_.shape.block_k));
    }
  }

  // Returns the key rows to pack for each head of the sequence. They are the rows that some strip visits, because only
  // such rows may be read.
  [[nodiscard]] Interval PackKeys(const Sequence& sequence) const {
    // K and V that are packed for the tile unit give other bits. So the whole sequence decides whether they are packed
    // for the tile unit. The rows of this plan and the sizes of its tiles have no influence.
    const bool tiles = problem_.packs_tiles;
    const int64_t strips = CeilDiv(problem_.group() * (tiles ? sequence.rule.sq : sequence.sq), strip_rows_);
    const bool dense = problem_.k_in_place && problem_.v_in_place;
    const Interval keys = sequence.rule.KeysOfRows({0, sequence.sq});
    const bool pays = strips >= kPackStrips && (tiles ? PartKeys(sequence) >= sequence.sk : cut_.tiles() >= 2);
    if (dense || keys.empty() || !(pays || problem_.whole_rows)) return {};
    const int64_t step = problem_.whole_rows ? kKeyStep : kPackStep;
    return {keys.begin / step * step, std::min(CeilDiv(keys.end, kKeyStep) * kKeyStep, sequence.sk)};
  }

  // Checks the size of a slot. An element takes four bytes in f32 panels, at least one byte in int8 panels, and two
  // bytes in tiles of the tile unit.
  void CheckSlot() const {
    const int64_t columns = (problem_.k_in_place ? 0 : problem_.d) + (problem_.v_in_place ? 0 : problem_.dv);
    const size_t bytes = problem_.dtype == DType::kI8 ? 1 : problem_.packs_tiles ? 2 : sizeof(float);
    CheckWorkspace(static_cast<double>(plan_.slot_rows) * static_cast<double>(columns) * static_cast<double>(bytes),
                   machine_);
  }

  void AddSequence(int64_t index, const Sequence& sequence) {
    Measure(sequence);
    const Interval pack_keys = PackKeys(sequence);
    if (!pack_keys.empty()) {
      plan_.slot_rows = std::max(plan_.slot_rows, CeilDiv(sequence.sk, kKeyStep) * kKeyStep);
      CheckSlot();
    }
    for (int64_t head_kv = 0; head_kv < problem_.heads_kv; ++head_kv) {
      HeadTiles head{
          .item_begin = std::ssize(plan_.items),
          .row_blocks = cut_.row_blocks,
          .uneven_rows = PartKeys(sequence) >= sequence.sk && blocks_.back().weight != blocks_.front().weight,
          .pack_keys = pack_keys};
      for (int64_t chunk = 0; chunk < cut_.head_chunks; ++chunk) AddRows(index, sequence, head_kv, chunk);
      head.item_end = std::ssize(plan_.items);
      heads.push_back(head);
    }
    const double flops_per_head_pair = FlopsPerPair() * static_cast<double>(problem_.heads);
    plan_.flops += flops_per_head_pair * static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
    plan_.flops_full += flops_per_head_pair * static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
  }

  void AddRows(int64_t index, const Sequence& sequence, int64_t head_kv, int64_t chunk) {
    const int64_t head_in_group = chunk * cut_.heads;
    const int64_t heads_here = std::min(cut_.heads, problem_.group() - head_in_group);
    for (size_t block = 0; block < blocks_.size(); ++block) {
      const int64_t row = static_cast<int64_t>(block) * cut_.rows;
      const Interval rows{row, std::min(row + cut_.rows, sequence.sq)};
      // The last chunk may have fewer heads than the chunk for which blocks_ was measured.
      const TileWork work = heads_here == cut_.heads
                                ? blocks_[block]
                                : MeasureTile(sequence.rule, rows, heads_here, strip_rows_, plan_.shape.block_k);
      AddParts(sequence,
               {.sequence = index,
                .head_kv = head_kv,
                .head_begin = head_kv * problem_.group() + head_in_group,
                .heads = heads_here,
                .row_begin = rows.begin,
                .row_end = rows.end,
                .keys = work.keys,
                .cost = std::max<int64_t>(work.blocks, 1)},
               work.weight);
      plan_.flops_visited += FlopsPerPair() * work.pairs;
    }
  }

  // Adds the tile as one item, or as one item per part of its keys.
  void AddParts(const Sequence& sequence, ForwardItem item, int64_t weight) {
    const int64_t part_keys = PartKeys(sequence);
    const Interval hull = item.keys;
    const int64_t first = hull.begin / part_keys;
    const int64_t parts = hull.empty() ? 1 : CeilDiv(hull.end, part_keys) - first;
    if (parts > 1) {
      item.parts = static_cast<int32_t>(parts);
      item.merge = static_cast<int32_t>(plan_.merges++);
      item.first_state = plan_.states;
      plan_.states += parts;
      plan_.state_rows = std::max(plan_.state_rows, (item.row_end - item.row_begin) * item.heads);
    }
    const int64_t cost = item.cost;
    for (int64_t part = 0; part < parts; ++part) {
      if (parts > 1) {
        item.part = static_cast<int32_t>(part);
        item.keys = {std::max(hull.begin, (first + part) * part_keys),
                     std::min(hull.end, (first + part + 1) * part_keys)};
        item.cost = std::max<int64_t>(core::ShareOf(cost, item.keys.size(), hull.size()), 1);
      }
      plan_.items.push_back(item);
      durations.push_back(parts > 1 ? std::max<int64_t>(core::ShareOf(weight, item.keys.size(), hull.size()), 1)
                                    : weight);
    }
  }

  const AttentionProblem& problem_;
  const Machine& machine_;
  const int64_t strip_rows_;
  ForwardPlan& plan_;

  std::optional<RowRule> measured_;  // the RowRule for which cut_ and blocks_ were made
  RowCut cut_;
  std::vector<TileWork> blocks_;  // the work of the sequence's row blocks
};

void ScaleDown(std::vector<int64_t>& durations) {
  const double total = std::accumulate(durations.begin(), durations.end(), 0.0);
  if (total <= kMaxTotalDuration) return;
  const auto divisor = static_cast<int64_t>(total / kMaxTotalDuration) + 1;
  for (int64_t& duration : durations) duration = std::max<int64_t>(duration / divisor, 1);
}

std::vector<double> PartsOfTheLongest(std::span<const int64_t> loads) {
  const int64_t longest = *std::max_element(loads.begin(), loads.end());
  std::vector<double> parts;
  parts.reserve(loads.size());
  for (const int64_t load : loads) {
    parts.push_back(longest > 0 ? static_cast<double>(load) / static_cast<double>(longest) : 0.0);
  }
  return parts;
}

// Lets all workers claim from one list if that is faster in the simulation. With several NUMA nodes the ranges stay,
// because each range belongs to a node.
void TryOneList(std::span<const int64_t> durations, int64_t total, ForwardPlan& plan) {
  const auto items = std::ssize(plan.items);
  if (!plan.graph.range_node.empty()) return;
  for (int64_t pack = 0; pack < std::ssize(plan.packs); ++pack) {
    if (plan.graph.predecessor_count[static_cast<size_t>(items + pack)] > 0) return;  // the pack waits for a slot
  }
  core::TaskGraph listed = LongestFirst(plan, durations);
  Simulated simulated = Simulate(listed, durations);
  const double efficiency =
      static_cast<double>(total) / (static_cast<double>(listed.workers()) * static_cast<double>(simulated.makespan));
  if (efficiency <= plan.efficiency) return;
  plan.efficiency = efficiency;
  plan.load = PartsOfTheLongest(simulated.busy);
  plan.worker_of = std::move(simulated.worker);
  plan.graph = std::move(listed);
}

void Predict(std::span<const int64_t> durations, ForwardPlan& plan) {
  const core::TaskGraph& graph = plan.graph;
  const auto workers = static_cast<size_t>(graph.workers());
  std::vector<int64_t> range_load(workers, 0);
  for (size_t worker = 0; worker < workers; ++worker) {
    for (int64_t position = graph.range_begin[worker]; position < graph.range_begin[worker + 1]; ++position) {
      range_load[worker] += durations[static_cast<size_t>(graph.TaskAt(position))];
    }
  }
  const int64_t total = std::accumulate(range_load.begin(), range_load.end(), int64_t{0});
  const int64_t longest = *std::max_element(range_load.begin(), range_load.end());
  plan.load = PartsOfTheLongest(range_load);
  if (workers == 1 || total == 0) return;
  const bool simulate = graph.task_count > 1 && graph.task_count <= kMaxSimulatedTasks;
  const int64_t makespan = simulate ? SimulateMakespan(graph, durations) : longest;
  plan.efficiency = static_cast<double>(total) / (static_cast<double>(workers) * static_cast<double>(makespan));
  if (simulate && plan.efficiency < kEvenRanges) TryOneList(durations, total, plan);
}

// Returns the most slots of packed heads (AssignSlots). Up to workers + 1 heads have slots of their own; more heads
// share as many slots as there are workers.
int64_t MostSlots(int64_t heads, const AttentionProblem& problem, const Machine& machine) {
  const int64_t own = machine.workers + 1;
  return heads <= own || own % problem.heads_kv == 0 ? std::min(heads, own) : machine.workers;
}

// Raises the numbers of buffers and tasks to the most that any shorter sequences need. Shorter sequences can need more
// of both. Fewer heads may be packed, so that each has a slot of its own. Sequences of few rows have their keys cut
// into up to MostParts parts. A pack may have fewer keys, which makes more packs. The tasks of all these cases are
// added.
void RaiseToAnyLengths(const AttentionProblem& problem, const Machine& machine, ForwardPlan& plan) {
  int64_t most_rows = 0, parts = 0;
  for (const Sequence& sequence : problem.sequences) {
    most_rows = std::max(most_rows, sequence.sq);
    if (const int64_t most = MostParts(sequence.sk); most > 1) parts = core::SaturatedSum(parts, most);
  }
  const int64_t rows = std::min(most_rows, kDecodeRows);
  if (rows == 0) return;
  const RowCut cut = CutRows(rows, problem.group(), plan.shape.block_q, machine.strip_rows);
  const int64_t heads = core::SaturatedProduct(problem.heads_kv, std::ssize(problem.sequences));
  // Ranges have two joins per packed head, and one list has a single join.
  double tasks = static_cast<double>(std::ssize(plan.items) + std::ssize(plan.packs)) + 2 * static_cast<double>(heads);
  if (!problem.whole_rows && parts > 0) {
    plan.merges = core::SaturatedProduct(heads, cut.tiles());
    plan.states = core::SaturatedProduct(problem.heads_kv, cut.tiles(), parts);
    plan.state_rows = std::min(plan.shape.block_q, core::SaturatedProduct(problem.group(), rows));
    tasks += static_cast<double>(plan.states);
  }
  if (plan.slot_rows > 0) {
    plan.kv_slots = MostSlots(heads, problem, machine);
    tasks += 3.0 * static_cast<double>(heads) + 4.0 * machine.workers;
    if (!plan.graph.has_edges()) plan.graph.successors.push_back(0);
  }
  CheckTasks(tasks, machine);
  plan.graph.task_count = static_cast<int32_t>(tasks);
}

}  // namespace

int64_t FewestPackedRows(const AttentionProblem& problem, int64_t strip_rows) {
  return problem.whole_rows ? 1 : (kPackStrips - 1) * strip_rows / problem.group() + 1;
}

ForwardPlan MakeForwardPlan(const AttentionProblem& problem, const Machine& machine) {
  ForwardPlan plan;
  plan.shape = ChooseTileShape(problem, machine);
  ItemMaker maker(problem, machine, plan);
  maker.MakeAll();
  ScaleDown(maker.durations);
  OrderClaims(maker.heads, machine, plan, maker.durations);
  Predict(maker.durations, plan);
  if (problem.tile_eighths > 0) RaiseToAnyLengths(problem, machine, plan);
  return plan;
}

}  // namespace fa::tiling
