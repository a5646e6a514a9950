// This file orders blocks by list scheduling. A free rank takes a ready block of the earliest query head. Among these
// blocks, the rank takes the block with the longest path of waiting blocks behind it. The blocks of later heads are
// left for times when a rank would otherwise be idle. If only the path decided, ranks would be idle for twice as long.
#include "ranks/plan/sum_schedule.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "core/integer.h"
#include "core/saturating.h"
#include "ranks/plan/sequence_part.h"
#include "tiling/backward/backward_shape.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/plan_limits.h"
#include "tiling/row_cut.h"
#include "tiling/tile_shape.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// The largest number of chunks of keys per part of rows. In a simulation, 64 ranks of 64 threads each compute 16K
// causal rows. With 4 kv heads in flight, ranks are busy for 82 % of the time with 2 chunks per part. With 4 chunks per
// part, each of which has a column for every thread, ranks are busy for 95 % of the time. With 8 heads in flight, ranks
// are busy for 94 % with 4 chunks per part, and for 96 % with 6 or 8.
constexpr int64_t kChunksPerPart = 6;

// With fewer chunks per part than this, ranks wait for the last column of a block. Then tiles of 64 rows are better
// than tiles of 128 rows. In the simulation above, tiles of 64 rows raise the busy time from 49 % to 57 % with one
// chunk per part. With four chunks per part they lower the busy time from 95 % to 93 %.
constexpr int64_t kFewChunksPerPart = 3;

// The largest number of blocks of a sequence. More blocks would take 1 GB and some seconds to schedule. One chunk per
// part is allowed even if it makes more blocks.
constexpr int64_t kMostBlocks = int64_t{1} << 24;

// The predicted fixed cost of a block per head. Like the cost of the block's kept pairs, it is counted in (row, key)
// pairs. It equals the cost of one tile.
constexpr double kBlockPairs = static_cast<double>(kFullBlockQ * kColumnKeys);

/// Returns the cost of everything in a tile of `rows` rows but its products, as a fraction of the products' cost.
double TileOverhead(int64_t rows) {
  constexpr int64_t kStripRows = 32;  // the rows of a strip at most levels
  return static_cast<double>(kTileOverheadGroups) / static_cast<double>(rows / kStripRows * (kColumnKeys / kKeyStep));
}

int64_t MostChunks(int64_t parts, int64_t group) {
  if (parts <= 1) return 1;
  return std::clamp(kMostBlocks / (parts * group), parts, kChunksPerPart * parts);
}

double PairsOf(const RowRule& rule, Interval rows, Interval keys) {
  if (rule.listed != nullptr) return static_cast<double>(rows.size()) * static_cast<double>(keys.size());
  RowRule part = rule;  // in `part`, keys are counted from keys.begin
  part.lo -= keys.begin;
  part.hi -= keys.begin;
  part.prefix = std::clamp<int64_t>(rule.prefix - keys.begin, 0, keys.size());
  part.sk = keys.size();
  return static_cast<double>(part.KeptPairs(rows));
}

/// Returns the time from the end of sender.seconds until the next block of the chunk can start. If the sums stay on the
/// rank, this time is 0: a column of the next block begins when the same column of `sender` ends.
double OnTheWay(const SumSchedule& schedule, const SumCall& call, const SumBlock& sender) {
  if (sender.to == sender.rank || sender.to < 0) return 0;
  const int64_t keys = schedule.chunks[static_cast<size_t>(sender.chunk)].keys.size();
  return sender.late + call.message_seconds + call.key_seconds * static_cast<double>(keys);
}

class SumMaker {
 public:
  explicit SumMaker(const SumCall& call) : call_(call) {}

  SumSchedule Make() {
    for (int64_t s = call_.of.begin; s < call_.of.end; ++s) {
      const int64_t parts = std::ssize(PartsOfAllRanks(call_.sequences, s, call_.q));
      const int64_t chunks = std::ssize(Cut(call_.sequences[static_cast<size_t>(s)].sk, parts));
      result_.few_chunks |= parts > 1 && chunks < kFewChunksPerPart * parts;
    }
    for (int64_t s = call_.of.begin; s < call_.of.end; ++s) AddSequence(s);
    const int32_t travel = result_.travelling_chunks;
    if (travel > kMostTravellingChunks) {
      throw PlanTooLarge("chunks of sums that travel between ranks", travel, kMostTravellingChunks,
                         " (shards.cut contiguous parts fewer sequences, shards.strategy heads sends no sums)");
    }
    Schedule();
    return std::move(result_);
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t next_in_chunk = kNone, next_in_rows = kNone;
    int32_t waits_for = 0;  // the number of blocks for which this block waits
    double path = 0;        // predicted seconds from this block's start to the end of all blocks that follow it
    double ready = 0;
  };

  /// Returns the number of columns of a chunk that run side by side, so that every worker has a column of some head.
  [[nodiscard]] int64_t ColumnsAtOnce() const { return CeilDiv(int64_t{call_.workers}, call_.heads_kv); }

  [[nodiscard]] std::vector<Interval> Cut(int64_t sk, int64_t parts) const {
    const int64_t columns = CeilDiv(sk, kColumnKeys);
    // If there are few columns, a chunk has fewer columns than there are workers. It is better to have chunks for all
    // ranks than columns for all workers of one rank.
    const bool few = CeilDiv(columns, ColumnsAtOnce()) < parts;
    const int64_t step = few ? 1 : ColumnsAtOnce();
    const int64_t steps = CeilDiv(columns, step), count = std::min(steps, few ? parts : MostChunks(parts, call_.group));
    std::vector<Interval> chunks;
    for (int64_t c = 0; c < count; ++c) {
      chunks.push_back({core::ShareOf(steps, c, count) * step * kColumnKeys,
                        std::min(core::ShareOf(steps, c + 1, count) * step * kColumnKeys, sk)});
    }
    return chunks;
  }

  void CheckBlocks(int64_t chunks, int64_t parts, int64_t chains) const {
    const double wanted = static_cast<double>(result_.blocks.size()) +
                          static_cast<double>(chunks) * static_cast<double>(parts) * static_cast<double>(chains);
    const auto most = static_cast<double>(MostTasks(call_.memory_bytes));
    if (wanted > most) throw PlanTooLarge("blocks of sums of a call over ranks", wanted, most);
  }

  void AddSequence(int64_t s) {
    const Sequence& sequence = call_.sequences[static_cast<size_t>(s)];
    if (sequence.sk == 0) return;
    const std::vector<RankPart> parts = PartsOfAllRanks(call_.sequences, s, call_.q);
    std::vector<Interval> cut = Cut(sequence.sk, std::ssize(parts));
    if (ColumnsDescend(sequence.rule)) std::reverse(cut.begin(), cut.end());
    // If all rows of the sequence are on one rank, its blocks have all heads of the group at once. If the sequence has
    // no rows, the sums of its keys stay empty.
    const bool alone = parts.size() <= 1 && !call_.head_by_head;
    const int64_t chains = alone ? 1 : call_.group;
    CheckBlocks(std::ssize(cut), std::ssize(parts), chains);
    // For each (head of the group, part of the rows): the newest block, in any chunk, of this head and part, or kNone.
    std::vector<int32_t> before(static_cast<size_t>(chains) * parts.size(), kNone);
    for (const Interval& keys : cut) {
      const auto chunk = static_cast<int32_t>(result_.chunks.size());
      result_.chunks.push_back({.sequence = s - call_.of.begin, .keys = keys, .at = result_.keys});
      result_.keys += keys.size();
      const Interval seeing = sequence.rule.RowsOfKeys(keys);
      const auto sees = [&](const RankPart& part) {
        const Interval& rows = part.placed.rows;
        return rows.begin < seeing.end && seeing.begin < rows.end && !sequence.rule.KeysOfRows(rows).empty();
      };
      int32_t last = kNone;
      for (int64_t head = 0; head < chains; ++head) {
        const auto first_of_head = std::ssize(result_.blocks);
        for (size_t p = 0; p < parts.size(); ++p) {
          if (!sees(parts[p])) continue;
          const Interval heads = alone ? Interval{0, call_.group} : Interval{head, head + 1};
          const int32_t block =
              AddBlock(chunk, parts[p], heads, last, PairsOf(sequence.rule, parts[p].placed.rows, keys));
          int32_t& before_in_rows = before[static_cast<size_t>(head) * parts.size() + p];
          if (before_in_rows != kNone) {
            nodes_[static_cast<size_t>(before_in_rows)].next_in_rows = block;
            ++nodes_.back().waits_for;
          }
          before_in_rows = last = block;
        }
        for (auto block = first_of_head; block < std::ssize(result_.blocks); ++block) {
          result_.blocks[static_cast<size_t>(block)].begins_heads = block == first_of_head;
          result_.blocks[static_cast<size_t>(block)].ends_heads = block + 1 == std::ssize(result_.blocks);
        }
      }
      if (last != kNone) result_.chunks.back().last = RankOf(last);
    }
  }

  [[nodiscard]] int RankOf(int32_t block) const { return result_.blocks[static_cast<size_t>(block)].rank; }

  /// Predicts the time of a block of the current chunk; `pairs` is the number of kept pairs per query head. Of the
  /// columns that run side by side, each starts one tile of rows after the previous column. Columns that a mask cuts
  /// start together and end one after the other. The prediction is within 10 % of a simulation (Simulate), and within
  /// 15 % for small causal blocks.
  void Predict(double pairs, SumBlock& block) const {
    const int64_t rows = block.rows.size(), heads = block.heads.size();
    const int64_t keys = result_.chunks.back().keys.size(), columns = CeilDiv(keys, kColumnKeys);
    const int64_t at_once = std::min(columns, ColumnsAtOnce());
    const bool full = pairs >= static_cast<double>(rows) * static_cast<double>(keys);
    const auto late = static_cast<double>(at_once - 1) * (full ? static_cast<double>(CeilDiv(columns, at_once)) : 0.5);
    const int64_t tile_rows = TileRowsOfBlocks(rows, columns, at_once, result_.few_chunks);
    const double more = (1 + TileOverhead(tile_rows)) / (1 + TileOverhead(kFullBlockQ));
    const double all = (pairs + kBlockPairs) * more * static_cast<double>(heads * call_.heads_kv);
    const auto busy = static_cast<double>(std::min<int64_t>(at_once * call_.heads_kv, call_.workers));
    block.seconds = all / busy * call_.pair_seconds * call_.workers;
    block.late = late * static_cast<double>(tile_rows * kColumnKeys) * call_.pair_seconds * call_.workers;
  }

  int32_t AddBlock(int32_t chunk, const RankPart& part, Interval heads, int32_t before, double pairs) {
    const auto block = static_cast<int32_t>(result_.blocks.size());
    result_.blocks.push_back({.chunk = chunk, .rank = part.rank, .rows = part.placed.rows, .heads = heads});
    Node& node = nodes_.emplace_back();
    Predict(pairs, result_.blocks.back());
    if (before != kNone) {
      SumBlock& sender = result_.blocks[static_cast<size_t>(before)];
      sender.to = part.rank;
      int32_t& number = result_.chunks[static_cast<size_t>(chunk)].travel_number;
      if (sender.rank != part.rank && number < 0) number = result_.travelling_chunks++;
      result_.blocks.back().from = sender.rank;
      nodes_[static_cast<size_t>(before)].next_in_chunk = block;
      ++node.waits_for;
    }
    return block;
  }

  [[nodiscard]] double OnTheWay(int32_t block) const {
    return tiling::OnTheWay(result_, call_, result_.blocks[static_cast<size_t>(block)]);
  }

  // Blocks were added chunk after chunk, so a block that waits for another has a higher number.
  void FindPaths() {
    for (auto block = static_cast<int32_t>(nodes_.size()) - 1; block >= 0; --block) {
      Node& node = nodes_[static_cast<size_t>(block)];
      double behind = 0;
      if (node.next_in_chunk != kNone) {
        behind = OnTheWay(block) + nodes_[static_cast<size_t>(node.next_in_chunk)].path;
      }
      if (node.next_in_rows != kNone) behind = std::max(behind, nodes_[static_cast<size_t>(node.next_in_rows)].path);
      node.path = result_.blocks[static_cast<size_t>(block)].seconds + behind;
    }
  }

  /// An event of the simulation: block `block` becomes ready (block >= 0), or a rank becomes free.
  struct Event {
    double at = 0;
    int64_t number = 0;  // among events at the same time, the event with the lowest number is taken first
    int32_t block = 0;
    int rank = 0;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  void Schedule() {
    FindPaths();
    const auto ranks = static_cast<size_t>(call_.q.ranks());
    // For each rank, its ready blocks as (-head, path, -block): the earliest head comes first, then the longest path.
    std::vector<std::priority_queue<std::tuple<int64_t, double, int32_t>>> ready(ranks);
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    int64_t events_made = 0;
    const auto add = [&](double at, int32_t block, int rank) { events.push({at, events_made++, block, rank}); };
    const auto release = [&](int32_t block, double at) {
      Node& node = nodes_[static_cast<size_t>(block)];
      node.ready = std::max(node.ready, at);
      if (--node.waits_for <= 0) add(node.ready, block, result_.blocks[static_cast<size_t>(block)].rank);
    };
    for (int32_t block = 0; block < std::ssize(nodes_); ++block) {
      if (nodes_[static_cast<size_t>(block)].waits_for == 0) release(block, 0);
    }
    std::vector<SumBlock> ordered;
    ordered.reserve(result_.blocks.size());
    std::vector<int32_t> running(ranks, kNone);
    while (!events.empty()) {
      const Event event = events.top();
      events.pop();
      const auto rank = static_cast<size_t>(event.rank);
      if (event.block != kNone) {
        const int64_t head = result_.blocks[static_cast<size_t>(event.block)].heads.begin;
        ready[rank].emplace(-head, nodes_[static_cast<size_t>(event.block)].path, -event.block);
      } else {
        const int32_t done = running[rank];
        running[rank] = kNone;
        const Node& node = nodes_[static_cast<size_t>(done)];
        if (node.next_in_chunk != kNone) release(node.next_in_chunk, event.at + OnTheWay(done));
        if (node.next_in_rows != kNone) release(node.next_in_rows, event.at);
      }
      if (running[rank] != kNone || ready[rank].empty()) continue;
      const int32_t block = -std::get<int32_t>(ready[rank].top());
      ready[rank].pop();
      running[rank] = block;
      ordered.push_back(result_.blocks[static_cast<size_t>(block)]);
      add(event.at + ordered.back().seconds, kNone, event.rank);
    }
    result_.blocks.swap(ordered);
  }

  const SumCall& call_;
  SumSchedule result_;
  std::vector<Node> nodes_;
};

}  // namespace

// Returns kFullBlockQ / 2 rows if such tiles keep workers busier. For example, with 64 threads, 4 heads, 16 columns
// side by side and parts of 8192 rows, workers are busy for 87 % of a block's time. With kFullBlockQ rows, workers are
// busy for 81 %. Tiles with a quarter of the rows gain no more.
int64_t TileRowsOfBlocks(int64_t rows, int64_t columns, int64_t columns_at_once, bool few_chunks) {
  if (!few_chunks) return kFullBlockQ;
  const auto at_once = static_cast<double>(std::max<int64_t>(std::min(columns, columns_at_once), 1));
  const auto use = [&](int64_t tile_rows) {
    const double steps = static_cast<double>(columns * CeilDiv(rows, tile_rows)) / at_once;
    return steps / (steps + at_once - 1) / (1 + TileOverhead(tile_rows));
  };
  constexpr int64_t kHalf = kFullBlockQ / 2;
  return rows > 0 && columns > 0 && use(kHalf) > use(kFullBlockQ) ? kHalf : kFullBlockQ;
}

int64_t MostSumBlocks(int64_t sk, int64_t parts, int64_t group) {
  return core::SaturatedProduct(std::min(CeilDiv(sk, kColumnKeys), MostChunks(parts, group)), parts, group);
}

SumSchedule MakeSumSchedule(const SumCall& call) { return SumMaker(call).Make(); }

double PredictedSeconds(const SumSchedule& schedule, const SumCall& call, int64_t units) {
  // After some units, every further unit takes the same time. So the units beyond kReplayed are taken to last as long,
  // on average, as the later half of the first kReplayed.
  constexpr int64_t kReplayed = 64;
  const auto ranks = static_cast<size_t>(call.q.ranks());
  std::vector<double> free(ranks, 0), ends(ranks, 0), arrived;
  const auto end = [&] { return *std::max_element(ends.begin(), ends.end()); };
  double at_half = 0;
  for (int64_t unit = 0; unit < std::min(units, kReplayed); ++unit) {
    if (unit == kReplayed / 2) at_half = end();
    arrived.assign(schedule.chunks.size(), 0);
    free = ends;  // the graph of a unit starts when the graph of the unit before has ended
    for (const SumBlock& block : schedule.blocks) {
      double &rank = free[static_cast<size_t>(block.rank)], &sums = arrived[static_cast<size_t>(block.chunk)];
      rank = sums = std::max(rank, sums) + block.seconds;
      sums += OnTheWay(schedule, call, block);
      double& rank_ends = ends[static_cast<size_t>(block.rank)];
      rank_ends = std::max(rank_ends, rank + block.late);
    }
  }
  if (units <= kReplayed) return end();
  return end() + (end() - at_half) / (kReplayed / 2) * static_cast<double>(units - kReplayed);
}

}  // namespace fa::tiling
