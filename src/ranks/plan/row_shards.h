#ifndef FA_RANKS_PLAN_ROW_SHARDS_H_
#define FA_RANKS_PLAN_ROW_SHARDS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/sequence_shards.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// Consecutive rows of an axis that are contiguous in a tensor.
struct PlacedRows {
  Interval rows;
  int64_t at = 0;  ///< the place of rows.begin
  friend bool operator==(const PlacedRows&, const PlacedRows&) = default;
};

/// Which rank holds which rows of an axis, and where. A rank's rows lie one after the other, in the order of its
/// intervals.
class RowShards {
 public:
  RowShards() = default;
  /// Joins neighbouring intervals of a rank and drops empty ones.
  RowShards(int64_t rows, std::vector<std::vector<Interval>> intervals);

  /// @param unit  chunks begin at multiples of it
  static RowShards Make(SequenceShards::Cut cut, int64_t rows, int ranks, int64_t unit);

  [[nodiscard]] int ranks() const { return static_cast<int>(of_rank_.size()); }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] std::span<const PlacedRows> Of(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }
  [[nodiscard]] int64_t Count(int rank) const;
  /// Whether every interval begins and ends at a multiple of `unit` or at the end of the axis.
  [[nodiscard]] bool Aligned(int64_t unit) const;

 private:
  int64_t rows_ = 0;
  std::vector<std::vector<PlacedRows>> of_rank_;
};

/// The first row of [0, rows) that no interval holds or that two intervals hold; -1 if they cover it once. If an
/// interval leaves [0, rows) or ends before it begins, `outside` is set and the result is the begin of that interval.
[[nodiscard]] int64_t FirstRowNotCoveredOnce(int64_t rows, std::span<const std::vector<Interval>> intervals,
                                             bool* outside);

/// The parts of `placed` that lie in `wanted` (ascending, disjoint), in the order of `placed`.
[[nodiscard]] std::vector<PlacedRows> Within(std::span<const PlacedRows> placed, std::span<const Interval> wanted);

/// The union, ascending. Intervals that touch are joined, and empty ones are dropped.
[[nodiscard]] std::vector<Interval> UnionOf(std::vector<Interval> intervals);

[[nodiscard]] int64_t RowsIn(std::span<const Interval> intervals);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_ROW_SHARDS_H_
