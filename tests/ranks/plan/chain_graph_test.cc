// Tests the graphs of all ranks together. Each graph waits for sums that other ranks send.

#include "ranks/plan/chain_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks/plan/row_shards.h"
#include "ranks/plan/sequence_part.h"
#include "support/each_case.h"
#include "tests/support/sanitizer.h"

namespace fa::tiling {
namespace {

using test::Sanitized;

struct Case {
  Mask mask = Mask::None();
  int64_t sq = 0, sk = 0, group = 1, heads_kv = 1;
  int ranks = 1, workers = 1;
  SequenceShards::Cut cut = SequenceShards::Cut::kZigzag;
  bool copies_keys = true;
};

/// The schedule of a case and the graph of each rank.
class Chains {
 public:
  explicit Chains(const Case& of) : of_(of), q_(RowShards::Make(of.cut, of.sq, of.ranks, 128)) {
    Sequence& sequence = whole_.emplace_back();
    sequence.sq = of.sq;
    sequence.sk = of.sk;
    sequence.rule = MakeRowRule(of.mask, 0, of.sq, of.sk, true, true);
    schedule = MakeSumSchedule(call());
    graphs.resize(static_cast<size_t>(of.ranks));
    for (int rank = 0; rank < of.ranks; ++rank) {
      const std::vector<RowPart> parts = PartsOf(whole_, {0, 1}, q_.Of(rank));
      std::vector<Sequence> own;
      for (const RowPart& part : parts) own.push_back(PartOf(whole_.front(), part.placed.rows));
      part_begin.emplace_back();
      for (const RowPart& part : parts) part_begin.back().push_back(part.placed.rows.begin);
      graphs[static_cast<size_t>(rank)] = MakeChainGraph(schedule, {.own = own,
                                                                    .parts = parts,
                                                                    .whole = whole_,
                                                                    .group = of.group,
                                                                    .heads_kv = of.heads_kv,
                                                                    .block_q = 128,
                                                                    .block_k = kColumnKeys,
                                                                    .slot_row_of = no_slots_,
                                                                    .copies_keys = of.copies_keys,
                                                                    .workers = of.workers,
                                                                    .rank = rank});
    }
  }

  [[nodiscard]] SumCall call() const {
    return {.sequences = whole_,
            .of = {0, 1},
            .q = q_,
            .group = of_.group,
            .heads_kv = of_.heads_kv,
            .workers = of_.workers,
            .pair_seconds = 1.0 / of_.workers,
            .key_seconds = 4,
            .message_seconds = 1e4};
  }

  SumSchedule schedule;
  std::vector<ChainGraph> graphs;
  std::vector<std::vector<int64_t>> part_begin;  // first row in the sequence, per rank and part

 private:
  Case of_;
  std::vector<Sequence> whole_;
  RowShards q_;
  std::vector<int64_t> no_slots_;
};

/// Simulates the graphs of all ranks as the executor runs them. The workers of a rank share a list of claims. When a
/// task ends, its worker runs the first task that it has freed, and queues the others. The earliest queued task runs
/// first. When all tiles of a block have run, the block's sums are sent to the next block.
class Ranks {
 public:
  using Duration = std::function<double(const BackwardItem&)>;
  using Began = std::function<void(int rank, const BackwardItem&)>;

  Ranks(const Chains& chains, int workers, Duration duration, Began began)
      : chains_(chains), duration_(std::move(duration)), began_(std::move(began)) {
    for (const ChainGraph& graph : chains.graphs) {
      Rank& rank = ranks_.emplace_back();
      rank.graph = &graph;
      rank.waits = graph.plan.graph.predecessor_count;
      rank.waits.resize(graph.plan.items.size());
      rank.claimed.resize(graph.plan.items.size());
      for (const ChainBlock& block : graph.blocks) rank.left.push_back(block.tiles);
      rank.idle = workers;
    }
  }

  /// @return the time at which the last task ends, or -1 if some task never ran
  double Run() {
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) Feed(rank);
    while (!events_.empty()) {
      const auto [at, number, rank, task, arrival] = events_.top();
      events_.pop();
      now_ = at;
      if (task >= 0) {
        End(rank, task);
      } else {
        Release(rank, ranks_[static_cast<size_t>(rank)].graph->plan.graph.task_count + arrival, nullptr);
      }
      Feed(rank);
    }
    for (const Rank& rank : ranks_) {
      if (rank.ran != std::ssize(rank.graph->plan.items)) return -1;
    }
    return now_;
  }

  [[nodiscard]] int64_t messages() const { return messages_; }

 private:
  // (time, number of the event, rank, task that ends or -1, arrival if there is no task)
  using Event = std::tuple<double, int64_t, int, int32_t, int32_t>;
  struct Rank {
    const ChainGraph* graph = nullptr;
    std::vector<int32_t> waits, left;
    // A queue that returns the earliest task first.
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> queue;
    std::vector<bool> claimed;
    int32_t next_claim = 0;
    int64_t ran = 0;
    int idle = 0;
  };

  void Start(int rank, int32_t task) {
    const BackwardItem& item = ranks_[static_cast<size_t>(rank)].graph->plan.items[static_cast<size_t>(task)];
    began_(rank, item);
    events_.emplace(now_ + duration_(item), number_++, rank, task, 0);
  }

  void Feed(int r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    for (; rank.idle > 0; --rank.idle) {
      int32_t task = -1;
      if (!rank.queue.empty()) {
        task = rank.queue.top();
        rank.queue.pop();
      }
      while (task < 0 && rank.next_claim < std::ssize(rank.waits)) {
        const int32_t claim = rank.next_claim++;
        if (rank.waits[static_cast<size_t>(claim)] == 0) task = claim;
        rank.claimed[static_cast<size_t>(claim)] = true;
      }
      if (task < 0) return;
      Start(r, task);
    }
  }

  // Queues the tasks that a completed task or an arrival frees. If `next` is not null, the first of these tasks is
  // stored there instead.
  void Release(int r, int32_t of, int32_t* next) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const core::TaskGraph& graph = rank.graph->plan.graph;
    if (!graph.has_edges()) return;
    const auto begin = graph.successor_begin.begin() + of;
    for (int64_t t = begin[0]; t < begin[1]; ++t) {
      const int32_t task = graph.successors[static_cast<size_t>(t)];
      if (--rank.waits[static_cast<size_t>(task)] > 0 || !rank.claimed[static_cast<size_t>(task)]) continue;
      if (next != nullptr && *next < 0) {
        *next = task;
      } else {
        rank.queue.push(task);
      }
    }
  }

  void End(int r, int32_t task) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    ++rank.ran;
    const BackwardItem& item = rank.graph->plan.items[static_cast<size_t>(task)];
    if (item.key_begin < item.key_end && --rank.left[static_cast<size_t>(item.key_sums)] == 0) Send(r, item.key_sums);
    int32_t next = -1;
    Release(r, task, &next);
    if (next >= 0) {
      Start(r, next);
    } else {
      ++rank.idle;
    }
  }

  // Sends the sums of a block. The messages of a chunk are sent in the order of its chain.
  void Send(int r, int32_t block) {
    const ChainBlock& of = ranks_[static_cast<size_t>(r)].graph->blocks[static_cast<size_t>(block)];
    if (!of.sends()) return;
    ++messages_;
    rank_sent_.insert({r, block});
    const SumChunk& chunk = chains_.schedule.chunks[static_cast<size_t>(of.of.chunk)];
    const SumCall call = chains_.call();
    const double arrives = now_ + call.message_seconds + call.key_seconds * static_cast<double>(chunk.keys.size());
    int before = received_[{of.of.to, of.of.chunk}]++;
    for (const ChainBlock& next : ranks_[static_cast<size_t>(of.of.to)].graph->blocks) {
      if (next.of.chunk != of.of.chunk || !next.receives() || before-- > 0) continue;
      // The memory that receives these sums may have held sums of an earlier block, which must have been sent.
      if (next.before >= 0) {
        EXPECT_TRUE(rank_sent_.contains({of.of.to, next.before}));
      }
      events_.emplace(arrives, number_++, of.of.to, -1, next.arrival);
      return;
    }
    ADD_FAILURE() << "nobody receives block " << block << " of rank " << r;
  }

  const Chains& chains_;
  Duration duration_;
  Began began_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<std::tuple<int, int32_t>, int> received_;
  std::set<std::tuple<int, int32_t>> rank_sent_;  // (rank, block)
  int64_t messages_ = 0, number_ = 0;
  double now_ = 0;
};

std::vector<Case> SmallCases() {
  std::vector<Case> cases;
  const auto add = [&](const Mask& mask, int64_t sk, int ranks, int workers, bool copies_keys) {
    cases.push_back({.mask = mask,
                     .sq = 1700,
                     .sk = sk,
                     .group = 3,
                     .heads_kv = 2,
                     .ranks = ranks,
                     .workers = workers,
                     .copies_keys = copies_keys});
  };
  test::ForEachCase(add, test::Axis{"mask", {Mask::None(), Mask::Causal(), Mask::Band(300, 100), Mask::Prefix({400})}},
                    test::Axis{"sk", {500, 1700}}, test::Axis{"ranks", {1, 2, 3, 7}}, test::Axis{"workers", {1, 16}},
                    test::Axis{"copies_keys", {false, true}});
  return cases;
}

// Tiles take any time and run in any order. But each column gets its additions in the order of one process: head by
// head, with ascending rows, on one rank after another. Every row group adds its columns in ascending or in descending
// order. A copy of K and V is used by one chunk at a time.
TEST(ChainGraph, AddsInTheOrderOfOneProcessWhateverTilesTake) {
  const auto check = [](const Case& of, uint64_t seed) {
    const Chains chains(of);
    std::mt19937_64 random(seed);
    using Addition = std::tuple<int64_t, int64_t>;                            // (query head, first row in the sequence)
    std::map<std::tuple<int64_t, int64_t>, std::vector<Addition>> of_column;  // additions by (kv head, first key)
    std::map<std::tuple<int64_t, int64_t>, std::vector<int64_t>> of_rows;     // first keys by (query head, first row)
    std::map<std::tuple<int, int32_t, int64_t, int64_t>, int32_t> copy_held;  // block by (rank, copy, kv head, column)
    int64_t blocks_sent = 0;
    for (const ChainGraph& graph : chains.graphs) {
      for (const ChainBlock& block : graph.blocks) blocks_sent += block.sends() ? 1 : 0;
    }
    const auto began = [&](int rank, const BackwardItem& item) {
      if (item.key_begin == item.key_end) return;
      const ChainGraph& graph = chains.graphs[static_cast<size_t>(rank)];
      const ChainBlock& block = graph.blocks[static_cast<size_t>(item.key_sums)];
      const SumChunk& chunk = chains.schedule.chunks[static_cast<size_t>(block.of.chunk)];
      EXPECT_LE(chunk.keys.begin, item.key_begin);
      EXPECT_LE(item.key_end, chunk.keys.end);
      if (of.copies_keys) {
        int32_t& held = copy_held[{rank, block.copy, item.head_kv, item.key_begin - chunk.keys.begin}];
        if (item.first_of_column) held = item.key_sums;
        EXPECT_EQ(held, item.key_sums);
      }
      if (item.row_begin == item.row_end) return;
      const int64_t row =
          chains.part_begin[static_cast<size_t>(rank)][static_cast<size_t>(item.sequence)] + item.row_begin;
      of_column[{item.head_kv, item.key_begin}].emplace_back(item.head, row);
      of_rows[{item.head, row}].push_back(item.key_begin);
    };
    Ranks ranks(
        chains, of.workers, [&](const BackwardItem&) { return static_cast<double>(random() % 1000); }, began);
    ASSERT_GE(ranks.Run(), 0) << "ranks wait for each other";
    EXPECT_EQ(ranks.messages(), blocks_sent);
    int64_t tiles = 0;
    for (const auto& [column, additions] : of_column) {
      EXPECT_TRUE(std::is_sorted(additions.begin(), additions.end()));
      EXPECT_EQ(std::adjacent_find(additions.begin(), additions.end()), additions.end());
      tiles += std::ssize(additions);
    }
    for (const auto& [rows, keys] : of_rows) {
      EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()) || std::is_sorted(keys.rbegin(), keys.rend()));
    }
    // There are as many tiles as if one rank had all rows.
    const Chains alone({.mask = of.mask, .sq = of.sq, .sk = of.sk, .group = of.group, .heads_kv = of.heads_kv});
    int64_t wanted = 0;
    for (const BackwardItem& item : alone.graphs.front().plan.items) {
      wanted += item.row_begin < item.row_end && item.key_begin < item.key_end ? 1 : 0;
    }
    EXPECT_EQ(tiles, wanted);
  };
  test::ForEachCase(check, test::Axis{"case", SmallCases()}, test::Axis{"seed", {0, 1, 2, 3}});
}

TEST(ChainGraph, EveryColumnOfABlockHasOneFirstAndOneLastTile) {
  for (const Case& of : SmallCases()) {
    const Chains chains(of);
    for (const ChainGraph& graph : chains.graphs) {
      std::map<std::tuple<int32_t, int64_t, int64_t>, std::pair<int, int>> columns;
      std::vector<int32_t> tiles(graph.blocks.size(), 0);
      for (const BackwardItem& item : graph.plan.items) {
        if (item.key_begin == item.key_end) continue;
        auto& [first, last] = columns[{item.key_sums, item.head_kv, item.key_begin}];
        first += item.first_of_column ? 1 : 0;
        last += item.last_of_column ? 1 : 0;
        ++tiles[static_cast<size_t>(item.key_sums)];
      }
      int64_t wanted = 0;
      for (size_t b = 0; b < graph.blocks.size(); ++b) {
        const SumChunk& chunk = chains.schedule.chunks[static_cast<size_t>(graph.blocks[b].of.chunk)];
        wanted += of.heads_kv * ((chunk.keys.size() + kColumnKeys - 1) / kColumnKeys);
        EXPECT_EQ(tiles[b], graph.blocks[b].tiles);
      }
      EXPECT_EQ(std::ssize(columns), wanted);
      for (const auto& [column, ends] : columns) EXPECT_EQ(ends, std::pair(1, 1));
    }
  }
}

// The plan predicts the time of blocks. The prediction must agree with the time of all tiles of all ranks, which Ranks
// simulates.
TEST(ChainGraph, TilesTakeAsLongAsThePlanPredictsFromBlocks) {
  std::vector<Case> cases = {{.sq = 1 << 14, .sk = 1 << 14, .group = 4, .heads_kv = 4, .ranks = 4, .workers = 8},
                             {.sq = 1 << 15, .sk = 1 << 15, .group = 4, .heads_kv = 4, .ranks = 8, .workers = 16},
                             {.sq = 1 << 15, .sk = 1 << 15, .group = 4, .heads_kv = 2, .ranks = 4, .workers = 8}};
  if (Sanitized()) cases.resize(1);  // the other cases make the same memory accesses
  for (const Case& of : cases) {
    for (const Mask& mask : {Mask::None(), Mask::Causal()}) {
      Case masked = of;
      masked.mask = mask;
      const Chains chains(masked);
      constexpr double kGroupPairs = 32.0 * 8;  // one unit of BackwardItem::cost is this many pairs
      constexpr double kTileGroups = 2;
      // PredictedSeconds adds kTileGroups to the cost of each tile.
      const double all = 1 + kTileGroups / (128 / 32 * 128 / 8);
      Ranks ranks(
          chains, of.workers,
          [&](const BackwardItem& item) { return (static_cast<double>(item.cost) + kTileGroups) * kGroupPairs / all; },
          [](int, const BackwardItem&) {});
      const double tiles = ranks.Run(), blocks = PredictedSeconds(chains.schedule, chains.call(), 1);
      ASSERT_GT(tiles, 0);
      EXPECT_LT(tiles, 1.03 * blocks) << of.ranks << " ranks";
      EXPECT_GT(tiles, 0.97 * blocks) << of.ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace fa::tiling
