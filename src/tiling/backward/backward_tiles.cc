#include "tiling/backward/backward_tiles.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "core/integer.h"
#include "tiling/row_cut.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

/// Makes the tiles column by column, then sorts the tiles of each band by their steps. PairTiles says what a step is.
class TileMaker {
 public:
  TileMaker(const RowRule& rule, const BackwardCut& cut)
      : rule_(rule), cut_(cut), row_groups_(CeilDiv(rule.sq, cut.block_q)), columns_(CeilDiv(rule.sk, cut.block_k)) {
    assert(!cut.head_by_head || cut.band == 1);
    last_of_rows_.assign(static_cast<size_t>(cut.group * row_groups_), PairTile::kNone);
    columns_made_ = {std::min(cut.columns.begin, columns_), std::min(cut.columns.end, columns_)};
    last_of_column_.assign(static_cast<size_t>(columns_made_.size()), PairTile::kNone);
    for (int64_t row = 0; row < rule.sq; row += cut.strip_rows) {
      strip_keys_.push_back(rule.KeysOfRows({row, std::min(row + cut.strip_rows, rule.sq)}));
    }
    if (!all_columns()) return;
    const auto count = static_cast<size_t>(CountPairTiles(rule, cut));
    result_.tiles.reserve(count);
    steps_.reserve(count);
  }

  PairTiles Make() {
    const bool descend =
        cut_.order == ColumnOrder::kOfRule ? ColumnsDescend(rule_) : cut_.order == ColumnOrder::kDescending;
    if (!all_columns()) FindOtherVisits(descend);
    const int64_t heads_at_once = cut_.head_by_head ? 1 : cut_.group;
    for (int64_t head = 0; head < cut_.group; head += heads_at_once) {
      for (int64_t c = 0; c < columns_made_.size(); ++c) {
        if (c % cut_.band == 0) result_.band_begin.push_back(std::ssize(result_.tiles));
        AddColumn(descend ? columns_made_.end - 1 - c : columns_made_.begin + c, {head, head + heads_at_once});
      }
    }
    if (cut_.rows_without_keys) AddRowsWithoutKeys();
    result_.band_begin.push_back(std::ssize(result_.tiles));
    for (size_t r = 0; r < last_of_rows_.size(); ++r) {
      const int32_t last = last_of_rows_[r];
      if (last == PairTile::kNone) continue;
      At(last).item.last_of_rows = !VisitedElsewhere(visited_after_, static_cast<int64_t>(r) % row_groups_);
    }
    if (cut_.band > 1) SortBandsBySteps();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool all_columns() const { return columns_made_ == Interval{0, columns_}; }

  [[nodiscard]] static bool VisitedElsewhere(const std::vector<bool>& visited, int64_t row_group) {
    return !visited.empty() && visited[static_cast<size_t>(row_group)];
  }

  /// Finds the row groups that columns before columns_made_ visit, and the row groups that columns after columns_made_
  /// visit.
  void FindOtherVisits(bool descend) {
    const auto visits = [&](Interval columns) {
      std::vector<int64_t> change(static_cast<size_t>(row_groups_) + 1, 0);
      for (int64_t c = columns.begin; c < columns.end; ++c) {
        const Interval rows = rule_.RowsOfKeys(KeysOfColumn(c));
        if (rows.empty()) continue;
        ++change[static_cast<size_t>(rows.begin / cut_.block_q)];
        --change[static_cast<size_t>(CeilDiv(rows.end, cut_.block_q))];
      }
      std::vector<bool> visited;
      int64_t columns_here = 0;
      for (int64_t r = 0; r < row_groups_; ++r) {
        columns_here += change[static_cast<size_t>(r)];
        visited.push_back(columns_here > 0);
      }
      return visited;
    };
    visited_before_ = visits({0, columns_made_.begin});
    visited_after_ = visits({columns_made_.end, columns_});
    if (descend) visited_before_.swap(visited_after_);
  }

  [[nodiscard]] int32_t NextId() const { return static_cast<int32_t>(result_.tiles.size()); }

  int32_t& LastOfRows(int64_t head, int64_t row_group) {
    return last_of_rows_[static_cast<size_t>(head * row_groups_ + row_group)];
  }

  PairTile& At(int64_t tile) { return result_.tiles[static_cast<size_t>(tile)]; }

  [[nodiscard]] Interval RowsOfGroup(int64_t row_group) const {
    const int64_t begin = row_group * cut_.block_q;
    return {begin, std::min(begin + cut_.block_q, rule_.sq)};
  }

  [[nodiscard]] Interval KeysOfColumn(int64_t column) const {
    return {column * cut_.block_k, std::min((column + 1) * cut_.block_k, rule_.sk)};
  }

  PairTile& Append(int64_t head, Interval rows, Interval keys) {
    PairTile& tile = result_.tiles.emplace_back();
    tile.item.head = head;
    tile.item.row_begin = rows.begin;
    tile.item.row_end = rows.end;
    tile.item.key_begin = keys.begin;
    tile.item.key_end = keys.end;
    tile.band = static_cast<int32_t>(result_.band_begin.size()) - 1;
    steps_.push_back(0);
    return tile;
  }

  /// Adds the tiles of the query heads `heads` in one column.
  void AddColumn(int64_t column, Interval heads) {
    const Interval keys = KeysOfColumn(column);
    const Interval rows = rule_.RowsOfKeys(keys);
    int32_t& before = last_of_column_[static_cast<size_t>(column - columns_made_.begin)];
    if (rows.empty()) {
      if (heads.begin > 0) return;
      before = NextId();
      Append(0, {}, keys).item.first_of_column = true;
    }
    for (int64_t head = heads.begin; head < heads.end && !rows.empty(); ++head) {
      for (int64_t r = rows.begin / cut_.block_q; r < CeilDiv(rows.end, cut_.block_q); ++r) {
        AddTile(head, r, keys, before);
      }
    }
    At(before).item.last_of_column = rows.empty() || heads.end == cut_.group;
  }

  void AddTile(int64_t head, int64_t row_group, Interval keys, int32_t& before_in_column) {
    const int32_t id = NextId();
    int32_t& before_in_rows = LastOfRows(head, row_group);
    PairTile& tile = Append(head, RowsOfGroup(row_group), keys);
    Measure(tile.item);
    tile.item.first_of_column = before_in_column == PairTile::kNone;
    tile.item.first_of_rows = before_in_rows == PairTile::kNone && !VisitedElsewhere(visited_before_, row_group);
    if (before_in_column != PairTile::kNone) {
      At(before_in_column).next_in_column = id;
      WaitFor(before_in_column);
    }
    if (before_in_rows == PairTile::kNone) WaitForSlotRows(head, row_group);
    if (before_in_rows != PairTile::kNone) {
      At(before_in_rows).next_in_rows = id;
      WaitFor(before_in_rows);
    }
    before_in_column = before_in_rows = id;
  }

  /// Makes the newest tile wait for the last tile of the same row group of the previous head. The new row group takes
  /// over that group's rows of the slot.
  void WaitForSlotRows(int64_t head, int64_t row_group) {
    if (!cut_.head_by_head || head == 0) return;
    const int32_t before = LastOfRows(head - 1, row_group);
    At(before).next_in_rows = NextId() - 1;
    WaitFor(before);
  }

  // Makes the newest tile wait for tile `before`.
  void WaitFor(int32_t before) {
    result_.tiles.back().waits = true;
    if (before < result_.band_begin.back()) return;
    steps_.back() = std::max(steps_.back(), steps_[static_cast<size_t>(before)] + 1);
  }

  // Computes the cost of a tile. Its strips are clipped to their own keys in steps of kKeyStep.
  void Measure(BackwardItem& item) {
    for (int64_t row = item.row_begin; row < item.row_end; row += cut_.strip_rows) {
      const Interval keys = strip_keys_[static_cast<size_t>(row / cut_.strip_rows)];
      const int64_t begin = std::max(keys.begin / kKeyStep * kKeyStep, item.key_begin);
      const int64_t end = std::min(CeilDiv(keys.end, kKeyStep) * kKeyStep, item.key_end);
      if (begin >= end) continue;
      item.cost += CeilDiv(end - begin, kKeyStep);
      result_.visited_pairs +=
          static_cast<double>(std::min(cut_.strip_rows, item.row_end - row)) * static_cast<double>(end - begin);
    }
  }

  // Adds tiles for the row groups without keys, whose dQ is 0. Such tiles wait only for their slot, and they stand in
  // the last band.
  void AddRowsWithoutKeys() {
    if (row_groups_ == 0) return;  // without rows there are no tiles
    for (int64_t head = 0; head < cut_.group; ++head) {
      for (int64_t r = 0; r < row_groups_; ++r) {
        if (LastOfRows(head, r) != PairTile::kNone) continue;
        if (VisitedElsewhere(visited_before_, r) || VisitedElsewhere(visited_after_, r)) continue;
        if (result_.band_begin.empty()) result_.band_begin.push_back(0);
        LastOfRows(head, r) = NextId();
        BackwardItem& item = Append(head, RowsOfGroup(r), {}).item;
        item.first_of_rows = item.last_of_rows = true;
        WaitForSlotRows(head, r);
      }
    }
  }

  // Sorts the tiles of each band by their steps. A counting sort is stable, so tiles of one step keep the order of
  // their columns.
  void SortBandsBySteps() {
    std::vector<int32_t> moved(result_.tiles.size());
    std::vector<int32_t> next;  // for each step of the band, the position of its next tile
    for (size_t band = 0; band + 1 < result_.band_begin.size(); ++band) {
      const auto begin = static_cast<size_t>(result_.band_begin[band]);
      const auto steps = std::span(steps_).subspan(begin, static_cast<size_t>(result_.band_begin[band + 1]) - begin);
      next.assign(static_cast<size_t>(*std::max_element(steps.begin(), steps.end())) + 2, 0);
      for (const int32_t step : steps) ++next[static_cast<size_t>(step) + 1];
      next[0] = static_cast<int32_t>(begin);
      for (size_t step = 1; step < next.size(); ++step) next[step] += next[step - 1];
      for (size_t t = 0; t < steps.size(); ++t) moved[begin + t] = next[static_cast<size_t>(steps[t])]++;
    }
    const auto renumber = [&moved](int32_t tile) {
      return tile == PairTile::kNone ? PairTile::kNone : moved[static_cast<size_t>(tile)];
    };
    std::vector<PairTile> sorted(result_.tiles.size());
    for (size_t t = 0; t < moved.size(); ++t) {
      PairTile& tile = sorted[static_cast<size_t>(moved[t])];
      tile = result_.tiles[t];
      tile.next_in_column = renumber(tile.next_in_column);
      tile.next_in_rows = renumber(tile.next_in_rows);
    }
    result_.tiles.swap(sorted);
  }

  const RowRule& rule_;
  const BackwardCut& cut_;
  const int64_t row_groups_, columns_;
  Interval columns_made_;
  // For each row group: whether it adds some column before, or after, the columns in columns_made_.
  std::vector<bool> visited_before_, visited_after_;
  std::vector<Interval> strip_keys_;
  std::vector<int32_t> last_of_rows_;    // for each (head, row group): the last of its tiles made so far
  std::vector<int32_t> last_of_column_;  // for each column: the last of its tiles made so far
  std::vector<int32_t> steps_;           // for each tile: its step, as PairTiles explains
  PairTiles result_;
};

}  // namespace

// The order follows from the keys that rows keep, not from sk. So unused rows and keys behind the sequence do not
// change it.
bool ColumnsDescend(const RowRule& rule) { return rule.sq > 0 && rule.Keys(0).end < rule.KeysOfRows({0, rule.sq}).end; }

PairTiles MakePairTiles(const RowRule& rule, const BackwardCut& cut) { return TileMaker(rule, cut).Make(); }

}  // namespace fa::tiling
