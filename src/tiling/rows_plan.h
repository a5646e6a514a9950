#ifndef FA_TILING_ROWS_PLAN_H_
#define FA_TILING_ROWS_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// Rows that do not depend on one another, cut into tasks. No task waits for another.
struct RowsPlan {
  int64_t rows = 0;
  int64_t step = 1;  ///< rows of every task except the last
  core::TaskGraph graph;

  [[nodiscard]] Interval RowsOf(int32_t task) const;
  /// Returns the number of tasks in each worker's range, as a fraction of the number in the longest range.
  [[nodiscard]] std::vector<double> Load() const;
};

/// Makes tasks of about `chunk` rows, which begin at multiples of `chunk`. If there is only one worker, the plan has
/// one task.
[[nodiscard]] RowsPlan MakeRowsPlan(int64_t rows, int64_t chunk, int workers);

}  // namespace fa::tiling

#endif  // FA_TILING_ROWS_PLAN_H_
