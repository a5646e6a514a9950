#include "tiling/rows_plan.h"

#include <gtest/gtest.h>

#include "support/each_case.h"

namespace fa::tiling {
namespace {

using test::Axis;
using test::ForEachCase;

TEST(RowsPlan, CoversEachRowOnceInChunks) {
  const auto check = [&](int64_t rows, int64_t chunk, int workers) {
    const RowsPlan plan = MakeRowsPlan(rows, chunk, workers);
    int64_t covered = 0;
    for (int32_t task = 0; task < plan.graph.task_count; ++task) {
      const Interval of_task = plan.RowsOf(task);
      ASSERT_EQ(of_task.begin, covered);
      ASSERT_GT(of_task.end, of_task.begin);
      ASSERT_EQ(of_task.begin % chunk, 0);
      covered = of_task.end;
    }
    EXPECT_EQ(covered, rows);
    EXPECT_EQ(plan.graph.workers(), workers);
    EXPECT_EQ(plan.graph.range_begin.front(), 0);
    EXPECT_EQ(plan.graph.range_begin.back(), plan.graph.task_count);
    if (workers == 1 || rows <= chunk) {
      EXPECT_EQ(plan.graph.task_count, rows > 0 ? 1 : 0);
    }
    EXPECT_LE(plan.graph.task_count, 1 << 16);
  };
  ForEachCase(check, Axis{"rows", {0, 1, 7, 8, 9, 1000, 1 << 20}}, Axis{"chunk", {1, 3, 8, 5000}},
              Axis{"workers", {1, 2, 7}});
}

}  // namespace
}  // namespace fa::tiling
