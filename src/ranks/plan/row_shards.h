#ifndef FA_RANKS_PLAN_ROW_SHARDS_H_
#define FA_RANKS_PLAN_ROW_SHARDS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/sequence_shards.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// Consecutive rows of an axis that are also consecutive in a tensor.
struct PlacedRows {
  Interval rows;
  int64_t at = 0;  ///< the row of the tensor at which rows.begin lies
  friend bool operator==(const PlacedRows&, const PlacedRows&) = default;
};

/// Tells which rows of an axis each rank holds, and where they lie in its tensors. A rank's rows lie one after the
/// other in its tensors, in the order of the rank's intervals.
class RowShards {
 public:
  RowShards() = default;
  /// Joins intervals of a rank that follow one another without a gap, and drops empty intervals.
  RowShards(int64_t rows, std::vector<std::vector<Interval>> intervals);

  /// Cuts an axis of `rows` rows.
  /// @param unit  all chunks begin at multiples of this number
  static RowShards Make(SequenceShards::Cut cut, int64_t rows, int ranks, int64_t unit);

  [[nodiscard]] int ranks() const { return static_cast<int>(of_rank_.size()); }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] std::span<const PlacedRows> Of(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }
  [[nodiscard]] int64_t Count(int rank) const;
  /// Returns whether every interval begins and ends at a multiple of `unit` or at the end of the axis.
  [[nodiscard]] bool Aligned(int64_t unit) const;

 private:
  int64_t rows_ = 0;
  std::vector<std::vector<PlacedRows>> of_rank_;
};

/// Returns the first row of [0, rows) that no interval holds or that two intervals hold, or -1 if every row is held
/// once. If an interval leaves [0, rows) or ends before it begins, returns its begin and sets *outside to true.
[[nodiscard]] int64_t FirstRowNotCoveredOnce(int64_t rows, std::span<const std::vector<Interval>> intervals,
                                             bool* outside);

/// Returns the parts of `placed` that lie in `wanted` (ascending, disjoint), in the order of `placed`.
[[nodiscard]] std::vector<PlacedRows> Within(std::span<const PlacedRows> placed, std::span<const Interval> wanted);

/// Returns the union of the intervals, ascending. Intervals that touch are joined, and empty intervals are dropped.
[[nodiscard]] std::vector<Interval> UnionOf(std::vector<Interval> intervals);

[[nodiscard]] int64_t RowsIn(std::span<const Interval> intervals);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_ROW_SHARDS_H_
