#include "ops/tile/grad_strip.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/tile/row_probability.h"

namespace fa::ops {

GradTiles::GradTiles(Carver& carver, bool pairs, int64_t lanes, int64_t keys)
    : s(carver.Floats(pairs ? kMaxStripWidth : lanes, keys)),
      dp(carver.Floats(pairs ? kMaxStripWidth : lanes, keys)),
      p(pairs ? carver.Floats(lanes * keys / 2) : s),
      ds(pairs ? carver.Floats(lanes * keys / 2) : dp),
      ds_keys(carver.Floats(pairs ? kMaxStripWidth * keys / 2 : 0)) {}

GradStrip MakeGradStrip(const tiling::AttentionProblem& problem, const core::kernels::StripKernels& kernels,
                        const FoldedRows& rows, int64_t first, const GradPanels& panels) {
  GradStrip strip{MakeStrip(problem, kernels, rows, first)};
  strip.first = first;
  strip.panel = panels.q + first * panels.columns;
  strip.do_panel = panels.d_out + first * panels.dv;
  strip.dq = panels.dq + first * panels.columns;
  strip.shift = panels.shift + first;
  strip.delta = panels.delta + first;
  const GradTiles& tiles = panels.tiles;
  const bool words = tiles.p != tiles.s;
  const int64_t at = first * panels.keys;
  strip.s = tiles.s + (words ? 0 : at);
  strip.dp = tiles.dp + (words ? 0 : at);
  strip.p = tiles.p + (words ? at / 2 : at);
  strip.ds = tiles.ds + (words ? at / 2 : at);
  return strip;
}

void OpenGradStrip(const tiling::AttentionProblem& problem, const GradInputs& inputs,
                   const core::kernels::RowKernels& kernels, int64_t row_offset, const GradStrip& strip) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const StripRows& lanes = strip.lanes;
  LaneArray<const void*> d_out;
  LaneArray<const void*> out;
  const bool has_d_out = inputs.d_out.data != nullptr;
  if (has_d_out) {
    RowAddresses(inputs.d_out, strip, row_offset, d_out);
    RowAddresses(inputs.out, strip, row_offset, out);
    strip.kernels->pack_queries({d_out, inputs.d_out.rows.dtype, lanes.count}, problem.dv, 1.0f, strip.do_panel);
  }
  for (int64_t i = 0; i < lanes.width; ++i) {
    // A lane without a row has Q = 0 and dO = 0. The infinite shift of such a lane makes its P 0, so the lane adds 0 to
    // every sum.
    strip.shift[i] = kInfinite;
    strip.delta[i] = 0;
    if (i >= lanes.count) continue;
    const auto statistic = [&](const layout::StatsView& of) {
      return of.At(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]);
    };
    if (inputs.lse != nullptr) {
      const float lse = statistic(*inputs.lse);
      strip.shift[i] = std::isinf(lse) ? kInfinite : RowShift(lse, 1);
    } else {
      const float max = statistic(inputs.softmax_max), sum = statistic(inputs.softmax_sum);
      strip.shift[i] = RowShift(inputs.centred && IsFarRow(max, sum) ? 0.0f : max, sum);
    }
    if (!has_d_out || (!inputs.delta_of_empty_rows && strip.shift[i] == kInfinite)) continue;
    strip.delta[i] = kernels.dot(d_out[i], inputs.d_out.rows.dtype, out[i], inputs.out.rows.dtype, problem.dv);
  }
}

void CentreFarRows(const GradInputs& inputs, int64_t row_offset, const Strip& strip, float unit, int64_t keys,
                   float* s) {
  const StripRows& lanes = strip.lanes;
  for (int64_t i = 0; i < lanes.count; ++i) {
    const int64_t row = row_offset + lanes.row[i];
    const float max = inputs.softmax_max.At(lanes.sequence, lanes.head[i], row);
    if (!IsFarRow(max, inputs.softmax_sum.At(lanes.sequence, lanes.head[i], row))) continue;
    const float centre = max / unit;
    for (int64_t key = 0; key < keys; ++key) s[key * lanes.width + i] -= centre;
  }
}

void ClearQueryGradients(const tiling::AttentionProblem& problem, const GradStrip& strip) {
  std::memset(strip.dq, 0, sizeof(float) * static_cast<size_t>((problem.d + problem.d_rope) * strip.lanes.width));
}

void WriteStripRows(const Strip& strip, const float* panel, int64_t columns, const float* multiplier,
                    const int32_t* zero, const layout::MutableRowsView& to, int64_t row_offset) {
  LaneArray<void*> rows;
  const StripRows& lanes = strip.lanes;
  for (int64_t i = 0; i < lanes.count; ++i) {
    rows[i] = to.At(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]);
  }
  strip.kernels->write_output(panel, columns, multiplier, zero, rows, to.rows.dtype, lanes.count);
}

}  // namespace fa::ops
