#include "ops/tile/head_strips.h"

#include <cassert>
#include <cstddef>

#include "core/integer.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

/// Returns the widest of the kernels that leave the fewest lanes without a head.
const core::kernels::StripKernels* FittingKernels(const core::kernels::KernelTable& table, int64_t heads) {
  const auto lanes = [heads](const core::kernels::StripKernels& kernels) {
    return core::RoundUp(heads, kernels.width);
  };
  return std::min_element(table.strips, table.strips + table.strip_count,
                          [&](const auto& a, const auto& b) { return lanes(a) < lanes(b); });
}

}  // namespace

HeadStrips::HeadStrips(const core::kernels::KernelTable& table, int64_t heads)
    : kernels_(FittingKernels(table, heads)), heads_(heads), strips_(core::CeilDiv(heads, kernels_->width)) {
  assert(kernels_->width <= kMaxStripWidth);
}

void HeadStrips::Pack(const core::kernels::RowBlock& q, int64_t d, float* panel) const {
  const auto* row = static_cast<const std::byte*>(q.data);
  const int64_t row_bytes = q.stride * static_cast<int64_t>(SizeOf(q.dtype));
  const int64_t strip_floats = kernels_->PanelRows(d) * width();
  for (int64_t strip = 0; strip < strips_; ++strip, panel += strip_floats) {
    LaneArray<const void*> rows;
    const int64_t count = Count(strip);
    for (int64_t lane = 0; lane < count; ++lane, row += row_bytes) rows[lane] = row;
    kernels_->pack_queries({rows, q.dtype, count}, d, 1, panel);
  }
}

void HeadStrips::Scores(const core::kernels::RowBlock& rows, int64_t keys, const float* panel, int64_t d,
                        bool accumulate, float* s) const {
  const int64_t strip_floats = kernels_->PanelRows(d) * width();
  for (int64_t strip = 0; strip < strips_; ++strip, panel += strip_floats, s += keys * width()) {
    kernels_->scores(rows, keys, panel, d, accumulate, s, nullptr);
  }
}

void HeadStrips::SumHeads(const core::kernels::IndexerKernels& kernels, const float* s, int64_t keys,
                          const float* weights, bool relu, float* sum) const {
  for (int64_t strip = 0; strip < strips_; ++strip, s += keys * width()) {
    kernels.sum_lanes(s, keys, width(), Count(strip), weights + First(strip), relu, strip > 0, sum);
  }
}

}  // namespace fa::ops
