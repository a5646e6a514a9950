#include "tiling/backward/backward_order.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace fa::tiling {
namespace {

constexpr int32_t kNone = -1;

/// A band: some neighbouring columns of keys of one (sequence, kv head) pair. The tiles of a band have consecutive task
/// ids.
struct Turn {
  int64_t pair = 0, band = 0;
};

class PairOrder {
 public:
  PairOrder(std::span<const HeadPair> pairs, const BackwardInterleave& interleave, BackwardPlan& plan)
      : pairs_(pairs), interleave_(interleave), plan_(plan), placed_(pairs.size()) {}

  void Make(int64_t group, int workers) {
    TakeTurns();
    AddItems(group);
    AddEdges();
    core::TaskGraph& graph = plan_.graph;
    graph.shared_claims = true;
    graph.range_begin.assign(static_cast<size_t>(workers) + 1, graph.task_count);
    graph.range_begin[0] = 0;
  }

 private:
  struct Placed {
    int32_t slot = 0;
    int32_t join_in = kNone, join_out = kNone;
    int64_t bands_at = 0;  // index in band_begin_ of the pair's first band
  };

  // Decides the order of the bands, and gives each pair its slot and its joins.
  void TakeTurns() {
    struct Active {
      int64_t pair, next_band;
    };
    std::deque<Active> active;
    int64_t next_pair = 0;
    for (; next_pair < std::min(interleave_.pairs, std::ssize(pairs_)); ++next_pair) {
      At(next_pair).slot = static_cast<int32_t>(next_pair);
      active.push_back({next_pair, 0});
    }
    plan_.slots = next_pair;
    while (!active.empty()) {
      Active turn = active.front();
      active.pop_front();
      turns_.push_back({turn.pair, turn.next_band});
      if (++turn.next_band < Tiles(turn.pair).bands()) {
        active.push_back(turn);
      } else if (next_pair < std::ssize(pairs_)) {
        At(next_pair).slot = At(turn.pair).slot;
        At(turn.pair).join_out = At(next_pair).join_in = joins_++;
        active.push_back({next_pair++, 0});
      }
    }
  }

  void AddItems(int64_t group) {
    size_t items = 0;
    for (int64_t pair = 0; pair < std::ssize(pairs_); ++pair) {
      At(pair).bands_at = std::ssize(band_begin_);
      band_begin_.resize(band_begin_.size() + static_cast<size_t>(Tiles(pair).bands()));
      items += Tiles(pair).tiles.size();
    }
    plan_.items.reserve(items);
    if (joins_ > 0) plan_.graph.order.reserve(items + static_cast<size_t>(joins_));
    for (const Turn turn : turns_) {
      const HeadPair& pair = pairs_[static_cast<size_t>(turn.pair)];
      Placed& placed = At(turn.pair);
      const auto first = static_cast<int32_t>(plan_.items.size());
      band_begin_[static_cast<size_t>(placed.bands_at + turn.band)] = first;
      for (int64_t t = BandBegin(turn); t < BandBegin({turn.pair, turn.band + 1}); ++t) {
        BackwardItem& item = plan_.items.emplace_back(pair.tiles->tiles[static_cast<size_t>(t)].item);
        item.sequence = pair.sequence;
        item.head_kv = pair.head_kv;
        item.head += pair.head_kv * group;
        item.slot = placed.slot;
      }
      if (joins_ == 0) continue;
      if (turn.band == 0 && placed.join_in != kNone) {
        plan_.graph.order.push_back(static_cast<int32_t>(items) + placed.join_in);
      }
      for (auto id = first; id < std::ssize(plan_.items); ++id) plan_.graph.order.push_back(id);
    }
    plan_.graph.task_count = static_cast<int32_t>(plan_.items.size()) + joins_;
  }

  void AddEdges() {
    core::TaskGraph& graph = plan_.graph;
    graph.predecessor_count.assign(static_cast<size_t>(graph.task_count), 0);
    graph.successor_begin.reserve(static_cast<size_t>(graph.task_count) + 1);
    graph.successor_begin.push_back(0);
    graph.successors.reserve(2 * plan_.items.size());
    const auto add_edge = [&graph](int32_t successor) {
      graph.successors.push_back(successor);
      ++graph.predecessor_count[static_cast<size_t>(successor)];
    };
    const auto end_task = [&graph] { graph.successor_begin.push_back(std::ssize(graph.successors)); };
    const auto join_id = [this](int32_t join) { return static_cast<int32_t>(plan_.items.size()) + join; };

    std::vector<int64_t> behind_join(static_cast<size_t>(joins_));
    for (const Turn turn : turns_) {
      const Placed& placed = At(turn.pair);
      if (placed.join_in != kNone) behind_join[static_cast<size_t>(placed.join_in)] = turn.pair;
      for (int64_t t = BandBegin(turn); t < BandBegin({turn.pair, turn.band + 1}); ++t) {
        const PairTile& tile = Tiles(turn.pair).tiles[static_cast<size_t>(t)];
        if (tile.next_in_column != kNone) add_edge(TaskOf(turn.pair, tile.next_in_column));
        if (tile.next_in_rows != kNone) add_edge(TaskOf(turn.pair, tile.next_in_rows));
        const bool last = tile.next_in_column == kNone && tile.next_in_rows == kNone;
        if (last && placed.join_out != kNone) add_edge(join_id(placed.join_out));
        end_task();
      }
    }
    for (const int64_t pair : behind_join) {
      const std::vector<PairTile>& tiles = Tiles(pair).tiles;
      for (size_t t = 0; t < tiles.size(); ++t) {
        if (!tiles[t].waits) add_edge(TaskOf(pair, static_cast<int32_t>(t)));
      }
      end_task();
    }
    if (graph.successors.empty()) {
      graph.predecessor_count.clear();
      graph.successor_begin.clear();
    }
  }

  Placed& At(int64_t pair) { return placed_[static_cast<size_t>(pair)]; }
  const PairTiles& Tiles(int64_t pair) const { return *pairs_[static_cast<size_t>(pair)].tiles; }
  int64_t BandBegin(Turn turn) const { return Tiles(turn.pair).band_begin[static_cast<size_t>(turn.band)]; }
  int32_t TaskOf(int64_t pair, int32_t tile) {
    const int32_t band = Tiles(pair).tiles[static_cast<size_t>(tile)].band;
    const int64_t in_band = tile - BandBegin({pair, band});
    return band_begin_[static_cast<size_t>(At(pair).bands_at + band)] + static_cast<int32_t>(in_band);
  }

  std::span<const HeadPair> pairs_;
  const BackwardInterleave& interleave_;
  BackwardPlan& plan_;
  std::vector<Placed> placed_;
  std::vector<Turn> turns_;
  std::vector<int32_t> band_begin_;  // for each band of each pair, the task id of its first tile
  int32_t joins_ = 0;
};

}  // namespace

void OrderPairs(std::span<const HeadPair> pairs, const BackwardInterleave& interleave, int64_t group, int workers,
                BackwardPlan& plan) {
  PairOrder(pairs, interleave, plan).Make(group, workers);
}

}  // namespace fa::tiling
