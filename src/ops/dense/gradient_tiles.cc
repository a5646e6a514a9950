#include "ops/dense/gradient_tiles.h"

#include <algorithm>

#include "core/integer.h"
#include "ops/dense/attended_tiles.h"
#include "tiling/backward/backward_shape.h"

namespace fa::ops {
namespace {

using core::kernels::kMaskedScore;
using core::kernels::TileAttendArgs;
using core::kernels::TileGradientStrip;
using tiling::Interval;

constexpr int64_t kChunk = TileAttendArgs::kKeys;
// The loop visits the keys of a column as one block.
static_assert(tiling::kMaxColumnKeys <= core::kernels::TileGradientArgs::chunks * kChunk);

/// What masks and passes need to know about the strips of a call of gradient_tiles.
struct ColumnEdits {
  const ScoreTile& score_tile;
  const GradientColumn& column;
  const ColumnStrip* const* strips;
};

/// Implements TileGradientArgs::edit.
void EditScores(const void* context, int64_t index, int64_t chunk, float* s) {
  const auto& edits = *static_cast<const ColumnEdits*>(context);
  const GradientColumn& column = edits.column;
  const ColumnStrip& strip = *edits.strips[index];
  const int64_t first = column.keys.begin + chunk * kChunk, width = strip.lanes.width;
  const Interval keys{std::max(strip.keys.begin, first), std::min(strip.keys.end, first + kChunk)};
  float *begin = s + (keys.begin - first) * width, *end = s + (keys.end - first) * width;
  std::fill(s, begin, kMaskedScore);
  std::fill(end, s + kChunk * width, kMaskedScore);
  const auto computed = [](Interval /*keys*/, float* /*s*/, float* /*row_max*/, const FetchRuns* reads = nullptr) {
    if (reads != nullptr) reads->Fetch();
  };
  edits.score_tile.Fill(strip, keys, computed, column.staging, begin, nullptr, nullptr);
  if (!column.inputs.centred) return;
  CentreFarRows(column.inputs, column.q_offset, strip, edits.score_tile.passes().scale().unit, keys.size(), begin);
}

}  // namespace

bool GradientTiles::Takes(const core::kernels::KernelTable& table, const BoundAttentionGrad& bound) {
  const BoundAttention& forward = bound.forward;
  return AttendedTiles::Takes(table, forward.problem) && !forward.has_drop_mask && !forward.has_philox &&
         !forward.caps() && !bound.has_dpse && !bound.has_dslopes;
}

/// Returns the strip's chunks of keys, counted from the column's first key.
TileGradientStrip GradientTiles::ChunksOf(const ColumnStrip& strip, Interval column) const {
  const ScorePasses& passes = score_tile_.passes();
  TileGradientStrip of{.begin = (strip.keys.begin - column.begin) / kChunk,
                       .end = core::CeilDiv(strip.keys.end - column.begin, kChunk)};
  if (passes.changes_scores() || passes.inputs().has_dense_mask()) return of;
  const Interval plain{std::max(strip.full.begin, column.begin) - column.begin,
                       std::min(strip.full.end, column.end) - column.begin};
  of.plain_begin = core::CeilDiv(plain.begin, kChunk);
  of.plain_end = plain.end < 0 ? 0 : plain.end / kChunk;
  return of;
}

bool GradientTiles::MayMeetMasked(const ColumnStrip& strip, Interval column) const {
  const TileGradientStrip of = ChunksOf(strip, column);
  return !strip.keys.empty() && (of.begin < of.plain_begin || of.end > of.plain_end);
}

void GradientTiles::Visit(const GradientColumn& column, const ColumnStrips& strips) const {
  const int64_t columns = problem_.d + problem_.d_rope;
  StripArray<TileGradientStrip, kMaxTileStrips> visited;
  StripArray<const ColumnStrip*, kMaxTileStrips> owners;
  int64_t blocks = 0;  // number of products with 32 x 32 results
  for (int64_t i = 0; i < strips.size(); ++i) {
    const ColumnStrip& strip = strips[i];
    if (strip.keys.empty() || strip.kernels->tile_loops == nullptr) continue;
    TileGradientStrip of = ChunksOf(strip, column.keys);
    of.panel = strip.panel;
    of.do_panel = strip.do_panel;
    of.shift = strip.shift;
    of.delta = strip.delta;
    of.dq = strip.dq;
    of.p_lanes = strip.p;
    of.ds_lanes = strip.ds;
    visited.Add(of);
    owners.Add(&strip);
    blocks += 2 * (of.end - of.begin) + columns / TileAttendArgs::kColumns;
  }
  if (visited.size() == 0) return;
  const ColumnEdits edits{score_tile_, column, owners.data()};
  owners[0]->kernels->tile_loops->gradients({.k = reinterpret_cast<const char*>(column.k),
                                             .v = reinterpret_cast<const char*>(column.v),
                                             .k_pairs = reinterpret_cast<const char*>(column.k_pairs),
                                             .d = columns,
                                             .dv = problem_.dv,
                                             .factor = score_tile_.passes().scale().exp2_factor,
                                             .strips = visited.data(),
                                             .strip_count = visited.size(),
                                             .accumulate = column.accumulate,
                                             .memory = column.memory,
                                             .edit = EditScores,
                                             .context = &edits,
                                             .fetch = column.fetch,
                                             .fetch_lines = core::CeilDiv(column.lines, blocks)});
}

}  // namespace fa::ops
