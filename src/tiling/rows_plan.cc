#include "tiling/rows_plan.h"

#include <algorithm>

#include "core/integer.h"

namespace fa::tiling {
namespace {

// The most tasks of a plan. This number is enough to balance any number of workers, and the ids of tasks fit into 32
// bits.
constexpr int64_t kEnoughTasks = 1 << 16;

}  // namespace

Interval RowsPlan::RowsOf(int32_t task) const {
  const int64_t begin = task * step;
  return {begin, begin + std::min(step, rows - begin)};
}

std::vector<double> RowsPlan::Load() const {
  const std::vector<int64_t>& begin = graph.range_begin;
  std::vector<double> load;
  for (size_t w = 0; w + 1 < begin.size(); ++w) load.push_back(static_cast<double>(begin[w + 1] - begin[w]));
  const double longest = load.empty() ? 0 : *std::max_element(load.begin(), load.end());
  for (double& of_worker : load) of_worker = longest > 0 ? of_worker / longest : 1;
  return load;
}

RowsPlan MakeRowsPlan(int64_t rows, int64_t chunk, int workers) {
  RowsPlan plan{.rows = rows, .step = std::max<int64_t>(rows, 1), .graph = {}};
  if (rows > chunk && workers > 1) {
    const int64_t chunks = core::CeilDiv(rows, chunk);
    plan.step = core::CeilDiv(chunks, kEnoughTasks) * chunk;
  }
  const int64_t tasks = core::CeilDiv(rows, plan.step);
  plan.graph.task_count = static_cast<int32_t>(tasks);
  for (int w = 0; w <= workers; ++w) plan.graph.range_begin.push_back(tasks * w / workers);
  return plan;
}

}  // namespace fa::tiling
