#include "ranks/plan/row_shards.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "core/saturating.h"

namespace fa::tiling {
namespace {

/// Cuts the axis into `chunks` equal chunks of whole units, and returns chunk `chunk`. A unit has `unit` rows; the last
/// unit may have fewer.
Interval Chunk(int64_t rows, int64_t unit, int64_t chunk, int64_t chunks) {
  const int64_t units = core::CeilDiv(rows, unit);
  const auto end_of = [&](int64_t c) {
    return std::min(rows, core::SaturatedProduct(core::ShareOf(units, c, chunks), unit));
  };
  return {end_of(chunk), end_of(chunk + 1)};
}

}  // namespace

RowShards::RowShards(int64_t rows, std::vector<std::vector<Interval>> intervals) : rows_(rows) {
  of_rank_.reserve(intervals.size());
  for (const std::vector<Interval>& of_rank : intervals) {
    std::vector<PlacedRows>& placed = of_rank_.emplace_back();
    int64_t at = 0;
    for (const Interval& interval : of_rank) {
      if (interval.empty()) continue;
      if (!placed.empty() && placed.back().rows.end == interval.begin) {
        placed.back().rows.end = interval.end;
      } else {
        placed.push_back({interval, at});
      }
      at += interval.size();
    }
  }
}

RowShards RowShards::Make(SequenceShards::Cut cut, int64_t rows, int ranks, int64_t unit) {
  std::vector<std::vector<Interval>> intervals(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Interval>& of_rank = intervals[static_cast<size_t>(rank)];
    if (cut == SequenceShards::Cut::kContiguous) {
      of_rank = {Chunk(rows, unit, rank, ranks)};
    } else {
      of_rank = {Chunk(rows, unit, rank, 2 * ranks), Chunk(rows, unit, 2 * ranks - 1 - rank, 2 * ranks)};
    }
  }
  return {rows, std::move(intervals)};
}

int64_t RowShards::Count(int rank) const {
  int64_t count = 0;
  for (const PlacedRows& placed : Of(rank)) count += placed.rows.size();
  return count;
}

bool RowShards::Aligned(int64_t unit) const {
  const auto aligned = [&](int64_t row) { return row % unit == 0 || row == rows_; };
  for (const std::vector<PlacedRows>& of_rank : of_rank_) {
    for (const PlacedRows& placed : of_rank) {
      if (!aligned(placed.rows.begin) || !aligned(placed.rows.end)) return false;
    }
  }
  return true;
}

int64_t FirstRowNotCoveredOnce(int64_t rows, std::span<const std::vector<Interval>> intervals, bool* outside) {
  *outside = false;
  std::vector<Interval> all;
  for (const std::vector<Interval>& of_rank : intervals) {
    for (const Interval& interval : of_rank) {
      if (interval.begin < 0 || interval.end > rows || interval.begin > interval.end) {
        *outside = true;
        return interval.begin;
      }
      if (!interval.empty()) all.push_back(interval);
    }
  }
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t covered = 0;
  for (const Interval& interval : all) {
    if (interval.begin != covered) return std::min(interval.begin, covered);
    covered = interval.end;
  }
  return covered < rows ? covered : -1;
}

std::vector<PlacedRows> Within(std::span<const PlacedRows> placed, std::span<const Interval> wanted) {
  std::vector<PlacedRows> within;
  for (const PlacedRows& run : placed) {
    for (const Interval& want : wanted) {
      const Interval both{std::max(run.rows.begin, want.begin), std::min(run.rows.end, want.end)};
      if (!both.empty()) within.push_back({both, run.at + both.begin - run.rows.begin});
    }
  }
  return within;
}

std::vector<Interval> UnionOf(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& interval) { return interval.empty(); });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> joined;
  for (const Interval& interval : intervals) {
    if (!joined.empty() && interval.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, interval.end);
    } else {
      joined.push_back(interval);
    }
  }
  return joined;
}

int64_t RowsIn(std::span<const Interval> intervals) {
  int64_t rows = 0;
  for (const Interval& interval : intervals) rows += interval.size();
  return rows;
}

}  // namespace fa::tiling
