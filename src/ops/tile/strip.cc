#include "ops/tile/strip.h"

#include <algorithm>
#include <cassert>

#include "core/kernels/kernel_facts.h"

namespace fa::ops {
namespace {

constexpr int64_t WidestOfAll() {
  int64_t widest = 0;
  for (const auto& line : core::kernels::registry::kKernels) widest = std::max(widest, line.width);
  return widest;
}
/// Returns the least width of any level's widest strip. The lines of the registry go from wide to narrow, so a level's
/// first line is its widest strip.
constexpr int64_t LeastWidest() {
  int64_t least = kMaxStripWidth;
  for (const auto& line : core::kernels::registry::kKernels) {
    if (line.width > 0) least = std::min(least, core::kernels::FactsOf(line.isa, DType::kBF16).strips[0].width);
  }
  return least;
}
static_assert(WidestOfAll() == kMaxStripWidth && tiling::kMaxStripRows == kMaxStripWidth);
static_assert(LeastWidest() == kLeastWidestStrip);

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
  // The loop increments row and head, because a division per lane would take as long as the rest of a short strip.
  int64_t row = first / rows.heads, head = first % rows.heads;
  for (int64_t i = 0; i < lanes.count; ++i) {
    lanes.row[i] = rows.row_begin + row;
    lanes.head[i] = rows.head_begin + head;
    if (++head == rows.heads) {
      head = 0;
      ++row;
    }
  }
  assert(rows.sequence >= 0 && rows.sequence < std::ssize(problem.sequences));
  const tiling::RowRule& rule = problem.sequences[static_cast<size_t>(rows.sequence)].rule;
  strip.hull = rule.KeysOfRows(lanes.rows());
  strip.full = rule.KeysOfEveryRow(lanes.rows());
  return strip;
}

void RowAddresses(const layout::RowsView& tensor, const Strip& strip, int64_t row_offset, const void** rows) {
  const StripRows& lanes = strip.lanes;
  assert(lanes.count <= kMaxStripWidth);  // `rows` has room for kMaxStripWidth addresses
  for (int64_t i = 0; i < lanes.count; ++i) {
    rows[i] = tensor.At(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]);
  }
}

void PackQueries(const tiling::AttentionProblem& problem, const layout::RowsView& q, const layout::RowsView& q_rope,
                 float multiplier, const Strip& strip) {
  const int64_t offset = problem.sequences[static_cast<size_t>(strip.lanes.sequence)].q_offset;
  LaneArray<const void*> rows;
  RowAddresses(q, strip, offset, rows);
  strip.kernels->pack_queries({rows, problem.dtype, strip.lanes.count}, problem.d, multiplier, strip.panel);
  if (problem.d_rope == 0) return;
  RowAddresses(q_rope, strip, offset, rows);
  strip.kernels->pack_queries({rows, problem.dtype, strip.lanes.count}, problem.d_rope, multiplier,
                              strip.panel + strip.kernels->PanelRows(problem.d) * strip.lanes.width);
}

}  // namespace fa::ops
