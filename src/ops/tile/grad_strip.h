#ifndef FA_OPS_GRAD_STRIP_H_
#define FA_OPS_GRAD_STRIP_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "layout/rows_view.h"
#include "ops/plan/carver.h"
#include "ops/tile/strip.h"

namespace fa::ops {

/// A strip of a backward's tile.
struct GradStrip : Strip {
  float* do_panel = nullptr;  ///< packed dO [dv][width]
  /// dQ^T [d + d_rope][width]; with state_by_row dQ [row][d] and then [row][d_rope].
  float* dq = nullptr;
  float* shift = nullptr;             ///< for each lane: RowShift of its statistics
  float* delta = nullptr;             ///< for each lane: rowsum(dO * O)
  float *s = nullptr, *dp = nullptr;  ///< [key][width]: s has scores, then P; dp has dP, then dS
  /// P and dS for the product `outer`: s and dp themselves or, for kernels of bf16 pairs, packed pairs.
  float *p = nullptr, *ds = nullptr;
  int64_t first = 0;  ///< number of the strip's first row in the tile
};

/// Memory for P and dS of a tile's strips, one strip after the other.
struct GradTiles {
  /// @param pairs  whether the kernels take pairs  @param lanes  the number of lanes of all strips together
  GradTiles(Carver& carver, bool pairs, int64_t lanes, int64_t keys);

  float *s, *dp;   ///< [row][keys]: s has scores, then P; dp has dP, then dS; with pairs, memory for one strip only
  float *p, *ds;   ///< P and dS for the product `outer`: s and dp themselves or, for kernels of pairs, [row][keys / 2]
  float* ds_keys;  ///< dS of the current strip in pairs of keys, if the kernels take pairs
};

/// The memory for the panels of a tile's strips, one strip after the other, beginning with row 0 of the tile.
struct GradPanels {
  float *q, *d_out, *dq;  ///< q and dq: [row][d + d_rope]; d_out: [row][dv]
  float *shift, *delta;   ///< one number per row
  GradTiles tiles;
  int64_t columns, dv, keys;
};

/// Returns the strip of these kernels that starts at folded row `first` (FoldedRows), with its part of the panels.
[[nodiscard]] GradStrip MakeGradStrip(const tiling::AttentionProblem& problem,
                                      const core::kernels::StripKernels& kernels, const FoldedRows& rows, int64_t first,
                                      const GradPanels& panels);

/// Cuts the rows of a tile into as few strips as the level's widest kernels allow, and calls open(strip) for each.
/// @param few  kernels that take all rows in one strip, or null if the level's widest kernels are to be used
template <typename Strips, typename Open>
void CutGradStrips(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                   const FoldedRows& rows, const GradPanels& panels, Strips& strips, const Open& open,
                   const core::kernels::StripKernels* few = nullptr) {
  for (int64_t first = 0; first < rows.size();) {
    const core::kernels::StripKernels& kernels = few != nullptr ? *few : table.ForRows(rows.size() - first);
    auto& strip = strips.Add({MakeGradStrip(problem, kernels, rows, first, panels)});
    open(strip);
    first += strip.lanes.width;
  }
}

/// The tensors that OpenGradStrip reads.
struct GradInputs {
  const layout::RowsView &d_out, &out;  ///< if d_out has null data, neither is read, and Delta stays 0
  const layout::StatsView &softmax_max, &softmax_sum;
  const layout::StatsView* lse = nullptr;  ///< if given, read instead of softmax_max and softmax_sum
  /// Whether CentreFarRows subtracts the maximum of a far row from its scores. The shift of such a row then does not
  /// include the maximum.
  bool centred = false;
  bool delta_of_empty_rows = true;  ///< if false, Delta of a row without keys is 0, whatever the dO of the row holds
};

/// Packs the strip's dO, and fills in shift and delta. dQ stays uninitialised, because the strip's first product
/// overwrites it. A lane without a row gets an infinite shift, which makes its P 0.
void OpenGradStrip(const tiling::AttentionProblem& problem, const GradInputs& inputs,
                   const core::kernels::RowKernels& kernels, int64_t row_offset, const GradStrip& strip);

/// Subtracts the row's maximum from the scores s[key][width] of each far row (IsFarRow).
/// @param unit  ScoreScale::unit
void CentreFarRows(const GradInputs& inputs, int64_t row_offset, const Strip& strip, float unit, int64_t keys,
                   float* s);

/// Writes 0 to dQ of a strip without keys, for which no product is computed.
void ClearQueryGradients(const tiling::AttentionProblem& problem, const GradStrip& strip);

/// Writes rows(lane)[c] = multiplier[lane] * panel[c][lane], rounded once, or 0 if zero[lane] is not 0.
void WriteStripRows(const Strip& strip, const float* panel, int64_t columns, const float* multiplier,
                    const int32_t* zero, const layout::MutableRowsView& to, int64_t row_offset);

/// Calls visit(first, end) for every run of strips of equal width in [from, to). One product can take such a run
/// together.
template <typename Strips, typename Visit>
void ForRunsOfOneWidth(const Strips& strips, int64_t from, int64_t to, const Visit& visit) {
  for (int64_t first = from, end = from; first < to; first = end) {
    while (end < to && strips[end].lanes.width == strips[first].lanes.width) ++end;
    visit(first, end);
  }
}

/// Returns the arguments, without operands, of a product over all lanes of the strips from `first` to `last`, which
/// have one width.
/// @param keys  GradPanels::keys
[[nodiscard]] inline core::kernels::OuterArgs OverStrips(const GradStrip& first, const GradStrip& last, int64_t keys) {
  return {.strip_stride = keys * first.kernels->OuterWidth(),
          .width = first.lanes.width,
          .rows = last.first + last.lanes.count - first.first,
          .b_first = first.first,
          .accumulate = true};
}

}  // namespace fa::ops

#endif  // FA_OPS_GRAD_STRIP_H_
