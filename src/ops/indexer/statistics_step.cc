#include "ops/indexer/statistics_step.h"

namespace fa::ops {

void StatisticsStep::operator()(const SparseToken& token, float* scores, std::byte* /*scratch*/) const {
  Write(token.sequence, sequences_.Row(token), TakeStatistics(kernels_, sequences_.Limit(token), scores));
}

void StatisticsStep::WriteUnusedRows(std::byte* /*scratch*/) const {
  sequences_.ForUnusedQueries([&](int64_t batch, tiling::Interval rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) Write(batch, row, {});
  });
}

void StatisticsStep::Write(int64_t batch, int64_t row, const RowStatistics& statistics) const {
  rows_.max.Write(batch, 0, row, statistics.max);
  rows_.sum.Write(batch, 0, row, statistics.sum);
}

}  // namespace fa::ops
