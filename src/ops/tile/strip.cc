#include "ops/tile/strip.h"

#include <algorithm>
#include <cassert>

namespace fa::ops {
namespace {

// The lines of every level, of this machine's family or not.
#define FA_EVERY_LEVEL
constexpr int64_t kStripWidths[] = {
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) width,
#define FA_PAIR_KERNELS(level, rows, width, vectors) width,
#define FA_FEW_ROW_KERNELS(level, rows) rows,
#include "core/kernels/levels/kernels.inc"
#undef FA_STRIP_KERNELS
#undef FA_PAIR_KERNELS
#undef FA_FEW_ROW_KERNELS
};
#undef FA_EVERY_LEVEL
static_assert(*std::max_element(std::begin(kStripWidths), std::end(kStripWidths)) == kMaxStripWidth);

}  // namespace

tiling::Interval Strip::KeysIn(tiling::Interval block) const {
  return {std::max(block.begin, hull.begin / kKeyStep * kKeyStep), std::min(block.end, hull.end)};
}

Strip MakeStrip(const tiling::AttentionProblem& problem, const core::kernels::StripKernels& kernels,
                const FoldedRows& rows, int64_t first) {
  Strip strip;
  assert(kernels.width <= kMaxStripWidth && first >= 0 && first < rows.size());
  strip.kernels = &kernels;
  StripRows& lanes = strip.lanes;
  lanes.sequence = rows.sequence;
  lanes.width = kernels.width;
  lanes.count = std::min(kernels.rows, rows.size() - first);
  // A division per lane would take as long as the rest of a short strip.
  int64_t row = first / rows.heads, head = first % rows.heads;
  for (int64_t i = 0; i < lanes.count; ++i) {
    lanes.row[i] = rows.row_begin + row;
    lanes.head[i] = rows.head_begin + head;
    if (++head == rows.heads) {
      head = 0;
      ++row;
    }
  }
  const tiling::RowRule& rule = problem.sequences[static_cast<size_t>(rows.sequence)].rule;
  strip.hull = rule.KeysOfRows(lanes.rows());
  strip.full = rule.KeysOfEveryRow(lanes.rows());
  return strip;
}

void RowAddresses(const layout::RowsView& tensor, const Strip& strip, int64_t row_offset, const void** rows) {
  const StripRows& lanes = strip.lanes;
  for (int64_t i = 0; i < lanes.count; ++i) {
    rows[i] = tensor.At(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]);
  }
}

void PackQueries(const tiling::AttentionProblem& problem, const layout::RowsView& q, const layout::RowsView& q_rope,
                 float multiplier, const Strip& strip) {
  const int64_t offset = problem.sequences[static_cast<size_t>(strip.lanes.sequence)].q_offset;
  const void* rows[kMaxStripWidth];
  RowAddresses(q, strip, offset, rows);
  strip.kernels->pack_queries({rows, problem.dtype, strip.lanes.count}, problem.d, multiplier, strip.panel);
  if (problem.d_rope == 0) return;
  RowAddresses(q_rope, strip, offset, rows);
  strip.kernels->pack_queries({rows, problem.dtype, strip.lanes.count}, problem.d_rope, multiplier,
                              strip.panel + strip.kernels->PanelRows(problem.d) * strip.lanes.width);
}

}  // namespace fa::ops
