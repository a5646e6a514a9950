#include "ranks/plan/chain_graph.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "tiling/backward/backward_order.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

constexpr int32_t kNone = -1;

class Maker {
 public:
  Maker(const SumSchedule& schedule, const ChainCall& call) : schedule_(schedule), call_(call) {
    graph().shared_claims = true;
    graph().earliest_first = true;  // other ranks wait for the sums of earlier blocks
    result_.plan.block_q = call.block_q;
    result_.plan.block_k = call.block_k;
    result_.plan.slot_row_of = call.slot_row_of;
    cut_ = {.block_q = call.block_q,
            .block_k = call.block_k,
            .strip_rows = call.strip_rows,
            .band = CeilDiv(int64_t{call.workers}, call.heads_kv)};
    int64_t row_groups = 0;
    for (const Sequence& part : call.own) {
      row_group_of_.push_back(row_groups);
      row_groups += CeilDiv(part.sq, call.block_q);
    }
    row_groups_ = row_groups;
    last_of_rows_.assign(static_cast<size_t>(row_groups * call.group * call.heads_kv), kNone);
    chain_.resize(schedule.chunks.size());
    last_block_.assign(schedule.chunks.size(), kNone);
  }

  ChainGraph Make() {
    for (const SumBlock& block : schedule_.blocks) {
      if (block.rank == call_.rank) AddBlock(block);
    }
    AddRowsWithoutKeys();
    Finish();
    return std::move(result_);
  }

 private:
  /// For each (kv head, column of a chunk), the index of one tile.
  using Columns = std::vector<int32_t>;

  core::TaskGraph& graph() { return result_.plan.graph; }

  [[nodiscard]] BackwardPlan TilesOf(int64_t part, const BackwardCut& cut) const {
    const PairTiles tiles = MakePairTiles(OwnRule(call_.own[static_cast<size_t>(part)]), cut);
    std::vector<HeadPair> pairs;
    if (!tiles.tiles.empty()) {
      for (int64_t head = 0; head < call_.heads_kv; ++head) pairs.push_back({part, head, &tiles});
    }
    BackwardPlan plan;
    // A HeadPair here stands for all query heads of the group, even if `cut` gives each tile a single head.
    OrderPairs(pairs, {.pairs = call_.heads_kv, .band = cut.band}, call_.group, call_.workers, plan);
    return plan;
  }

  /// Appends the items and edges of `tiles`. Returns the index of the first new item.
  int32_t Append(const BackwardPlan& tiles, int64_t first_head, int32_t block) {
    const auto first = static_cast<int32_t>(result_.plan.items.size());
    for (BackwardItem item : tiles.items) {
      item.head += first_head;
      item.slot = static_cast<int32_t>(item.head_kv);
      item.key_sums = block;
      result_.plan.items.push_back(item);
    }
    const core::TaskGraph& local = tiles.graph;
    for (size_t t = 0; t < tiles.items.size(); ++t) {
      if (local.has_edges()) {
        for (int64_t e = local.successor_begin[t]; e < local.successor_begin[t + 1]; ++e) {
          local_.push_back(first + local.successors[static_cast<size_t>(e)]);
        }
      }
      local_begin_.push_back(std::ssize(local_));
    }
    return first;
  }

  void AddBlock(const SumBlock& of) {
    const SumChunk& chunk = schedule_.chunks[static_cast<size_t>(of.chunk)];
    const int64_t sequence = call_.first_sequence + chunk.sequence;
    const auto found = std::find_if(call_.parts.begin(), call_.parts.end(), [&](const RowPart& part) {
      return part.sequence == sequence && part.placed.rows == of.rows;
    });
    cut_.group = of.heads.size();
    cut_.columns = {chunk.keys.begin / cut_.block_k, CeilDiv(chunk.keys.end, cut_.block_k)};
    cut_.order = ColumnsDescend(call_.whole[static_cast<size_t>(sequence)].rule) ? ColumnOrder::kDescending
                                                                                 : ColumnOrder::kAscending;
    cut_.rows_without_keys = false;
    const auto number = static_cast<int32_t>(result_.blocks.size());
    const int32_t begin = Append(TilesOf(found - call_.parts.begin(), cut_), of.heads.begin, number);
    const auto end = static_cast<int32_t>(result_.plan.items.size());
    ChainBlock& block = result_.blocks.emplace_back(ChainBlock{.of = of, .tiles = end - begin});
    block.copy = number % kKeyCopies;
    block.before = std::exchange(last_block_[static_cast<size_t>(of.chunk)], number);
    result_.copied_keys = std::max(result_.copied_keys, core::RoundUp(chunk.keys.size(), cut_.block_k));

    Columns first(static_cast<size_t>(cut_.columns.size() * call_.heads_kv), kNone), last = first;
    const int64_t row_group = row_group_of_[static_cast<size_t>(found - call_.parts.begin())];
    for (int32_t task = begin; task < end; ++task) {
      const BackwardItem& item = result_.plan.items[static_cast<size_t>(task)];
      const auto column =
          static_cast<size_t>(item.head_kv * cut_.columns.size() + (item.key_begin - chunk.keys.begin) / cut_.block_k);
      if (item.first_of_column) first[column] = task;
      if (item.last_of_column) last[column] = task;
      if (item.row_begin == item.row_end) continue;
      const auto rows = static_cast<size_t>(item.head * row_groups_ + row_group + item.row_begin / cut_.block_q);
      // The items are in topological order. So the first tile of these rows that the loop meets in the block is the one
      // that runs first.
      int32_t& before = last_of_rows_[rows];
      if (before != kNone && before < begin) AddEdge(before, task);
      before = task;
    }
    WaitForSums(of, first, block);
    chain_[static_cast<size_t>(of.chunk)] = of.to == of.rank ? last : Columns();
    if (!call_.copies_keys) return;
    if (in_copy_.size() <= static_cast<size_t>(block.copy)) in_copy_.emplace_back();
    WaitForCopy(first, last, in_copy_[static_cast<size_t>(block.copy)]);
  }

  void WaitForSums(const SumBlock& of, const Columns& first, ChainBlock& block) {
    const Columns& before = chain_[static_cast<size_t>(of.chunk)];
    if (of.from == of.rank) {
      for (size_t column = 0; column < first.size(); ++column) AddEdge(before[column], first[column]);
    } else if (of.from >= 0) {
      block.arrival = graph().arrivals++;
      waiting_.push_back(first);
    }
  }

  /// Adds edges for columns that use the same place in a copy of K and V. A column overwrites its place only after the
  /// column that was there before has ended. A block may have fewer columns than the copy holds.
  void WaitForCopy(const Columns& first, const Columns& last, Columns& in_copy) {
    const auto heads = static_cast<size_t>(call_.heads_kv);
    const size_t columns = first.size() / heads, held = in_copy.size() / heads;
    Columns now(heads * std::max(columns, held), kNone);
    for (size_t head = 0; head < heads; ++head) {
      for (size_t c = 0; c < std::max(columns, held); ++c) {
        int32_t& holder = now[head * std::max(columns, held) + c];
        if (c < held) holder = in_copy[head * held + c];
        if (c >= columns) continue;
        if (holder != kNone) AddEdge(holder, first[head * columns + c]);
        holder = last[head * columns + c];
      }
    }
    in_copy.swap(now);
  }

  void AddEdge(int32_t from, int32_t to) { edges_.emplace_back(from, to); }

  void AddRowsWithoutKeys() {
    cut_.columns = {0, 0};
    cut_.group = call_.group;
    cut_.order = ColumnOrder::kOfRule;
    cut_.rows_without_keys = true;
    for (int64_t part = 0; part < std::ssize(call_.parts); ++part) (void)Append(TilesOf(part, cut_), 0, 0);
  }

  // Writes the successors of all tiles. A tile's successor in its own block comes first, so that a worker goes on with
  // the next tile of the column.
  void Finish() {
    core::TaskGraph& graph = this->graph();
    graph.task_count = static_cast<int32_t>(result_.plan.items.size());
    graph.range_begin.assign(static_cast<size_t>(call_.workers) + 1, graph.task_count);
    graph.range_begin[0] = 0;
    result_.copies = std::min(static_cast<int32_t>(result_.blocks.size()), kKeyCopies);
    if (local_.empty() && edges_.empty() && waiting_.empty()) return;
    std::stable_sort(edges_.begin(), edges_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    graph.predecessor_count.assign(static_cast<size_t>(graph.task_count), 0);
    graph.successor_begin.reserve(static_cast<size_t>(graph.task_count) + 1);
    graph.successor_begin.push_back(0);
    graph.successors.reserve(local_.size() + edges_.size());
    const auto add = [&graph](int32_t to) {
      graph.successors.push_back(to);
      ++graph.predecessor_count[static_cast<size_t>(to)];
    };
    auto edge = edges_.begin();
    for (int32_t task = 0; task < graph.task_count; ++task) {
      const auto t = static_cast<size_t>(task);
      for (int64_t e = local_begin_[t]; e < local_begin_[t + 1]; ++e) add(local_[static_cast<size_t>(e)]);
      for (; edge != edges_.end() && edge->first == task; ++edge) add(edge->second);
      graph.successor_begin.push_back(std::ssize(graph.successors));
    }
    for (const Columns& columns : waiting_) {
      for (const int32_t task : columns) add(task);
      graph.successor_begin.push_back(std::ssize(graph.successors));
    }
  }

  const SumSchedule& schedule_;
  const ChainCall& call_;
  BackwardCut cut_;
  ChainGraph result_;
  std::vector<int64_t> row_group_of_;  // for each part: the index of its first row group
  int64_t row_groups_ = 0;
  std::vector<int32_t> last_of_rows_;  // for each (query head of the unit, row group): its last tile so far
  std::vector<int32_t> last_block_;    // for each chunk: its last block so far
  // For each chunk whose newest block keeps its sums on this rank: the last tiles of the block's columns.
  std::vector<Columns> chain_;
  std::vector<Columns> waiting_;  // for each arrival: the first tiles of the block's columns
  std::vector<Columns> in_copy_;  // for each copy of K and V: the last tiles of the columns in it
  std::vector<int32_t> local_;    // for each tile: its successors in the same block
  std::vector<int64_t> local_begin_ = {0};
  std::vector<std::pair<int32_t, int32_t>> edges_;  // edges between blocks
};

}  // namespace

RowRule OwnRule(const Sequence& part) {
  RowRule rule = part.rule;
  rule.sq = part.sq;
  return rule;
}

ChainGraph MakeChainGraph(const SumSchedule& schedule, const ChainCall& call) { return Maker(schedule, call).Make(); }

}  // namespace fa::tiling
