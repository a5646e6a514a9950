#ifndef FA_LAYOUT_BIND_LAYOUT_H_
#define FA_LAYOUT_BIND_LAYOUT_H_

#include <cstdint>

#include "fa/tensor.h"
#include "layout/rows.h"

namespace fa::layout {

/// The indices of the dimensions of a layout's shape: batch, sequence, heads and head size. -1 means that the layout
/// has no such dimension. In BSH and SBH, heads and head size share the last dimension: `dim` is that dimension and
/// `head` is -1. `rank` is the number of dimensions.
struct Axes {
  int rank, batch, seq, head, dim;
  [[nodiscard]] constexpr bool fused() const { return head < 0; }
};

/// AxesOf returns the axes of the inputs, OutputAxes the axes of the output.
[[nodiscard]] constexpr Axes AxesOf(Layout layout) {
  switch (layout) {
    case Layout::kBSH:
    case Layout::kBSH_BNSD:
    case Layout::kBSH_NBSD: return {3, 0, 1, -1, 2};
    case Layout::kSBH: return {3, 1, 0, -1, 2};
    case Layout::kBSND:
    case Layout::kBSND_BNSD:
    case Layout::kBSND_NBSD: return {4, 0, 1, 2, 3};
    case Layout::kTND:
    case Layout::kTND_NTD: return {3, -1, 0, 1, 2};
    case Layout::kNTD:
    case Layout::kNTD_TND:
    case Layout::kNSD: return {3, -1, 1, 0, 2};
    case Layout::kBNSD:
    case Layout::kBNSD_BSND:
    case Layout::kBNSD_NBSD: break;
  }
  return {4, 0, 2, 1, 3};
}

[[nodiscard]] constexpr Axes OutputAxes(Layout layout) {
  switch (layout) {
    case Layout::kBNSD_BSND: return AxesOf(Layout::kBSND);
    case Layout::kBSH_BNSD:
    case Layout::kBSND_BNSD: return AxesOf(Layout::kBNSD);
    case Layout::kBSH_NBSD:
    case Layout::kBSND_NBSD:
    case Layout::kBNSD_NBSD: return {4, 1, 2, 0, 3};
    case Layout::kTND_NTD: return AxesOf(Layout::kNTD);
    case Layout::kNTD_TND: return AxesOf(Layout::kTND);
    default: return AxesOf(layout);
  }
}

/// Returns whether the rows of all sequences share one dimension T.
[[nodiscard]] constexpr bool IsPacked(Layout layout) { return AxesOf(layout).batch < 0 && layout != Layout::kNSD; }

[[nodiscard]] constexpr Layout OutputLayout(Layout layout) {
  return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout;
}

/// Returns `stride`, or the dense row-major strides of `shape` if `stride` is empty.
[[nodiscard]] Dims FilledStride(const Dims& shape, const Dims& stride);

/// Returns the bytes from the first element to the end of the last element, or 0 for an empty tensor.
[[nodiscard]] int64_t SpanBytes(const TensorView& tensor);

/// Returns the rows of a checked tensor whose axes are `axes`. If heads and head size share a dimension, a head begins
/// every head_size elements.
[[nodiscard]] Rows RowsOf(const TensorView& tensor, const Axes& axes, int64_t head_size);

/// Returns the layout of a checked tensor of statistics. Its shape is [B,N,S] or [B,N,S,copies] or, if `packed`, [T,N]
/// or [T,N,copies].
[[nodiscard]] Stats StatsOf(const TensorView& tensor, bool packed);

}  // namespace fa::layout

#endif  // FA_LAYOUT_BIND_LAYOUT_H_
