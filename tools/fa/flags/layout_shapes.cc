#include "flags/layout_shapes.h"

#include <fmt/format.h>

#include "flags/failure.h"
#include "npy/npy_array.h"

namespace fa::tool {

std::vector<int64_t> ShapeOf(Layout layout, const TensorSizes& sizes) {
  const auto& [batch, seq, heads, d] = sizes;
  switch (InputLayout(layout)) {
    case Layout::kBSND: return {batch, seq, heads, d};
    case Layout::kBSH: return {batch, seq, heads * d};
    case Layout::kSBH: return {seq, batch, heads * d};
    case Layout::kTND: return {seq, heads, d};
    case Layout::kNTD:
    case Layout::kNSD: return {heads, seq, d};
    default: return {batch, heads, seq, d};
  }
}

std::vector<int64_t> OutputShapeOf(Layout layout, const TensorSizes& sizes) {
  const auto& [batch, seq, heads, d] = sizes;
  switch (layout) {
    case Layout::kBSH_NBSD:
    case Layout::kBSND_NBSD:
    case Layout::kBNSD_NBSD: return {heads, batch, seq, d};
    case Layout::kBSH_BNSD:
    case Layout::kBSND_BNSD: return ShapeOf(Layout::kBNSD, sizes);
    case Layout::kTND_NTD: return ShapeOf(Layout::kNTD, sizes);
    case Layout::kNTD_TND: return ShapeOf(Layout::kTND, sizes);
    default: return ShapeOf(OutputLayout(layout), sizes);
  }
}

Layout InputLayout(Layout layout) {
  switch (layout) {
    case Layout::kBNSD_BSND:
    case Layout::kBNSD_NBSD: return Layout::kBNSD;
    case Layout::kBSH_BNSD:
    case Layout::kBSH_NBSD: return Layout::kBSH;
    case Layout::kBSND_BNSD:
    case Layout::kBSND_NBSD: return Layout::kBSND;
    case Layout::kTND_NTD: return Layout::kTND;
    case Layout::kNTD_TND: return Layout::kNTD;
    default: return layout;
  }
}

TensorSizes SizesOf(const char* flag, Layout layout, const std::vector<int64_t>& shape, int64_t heads) {
  const Layout inputs = InputLayout(layout);
  const bool packed_heads = inputs == Layout::kBSH || inputs == Layout::kSBH;
  const size_t rank = inputs == Layout::kBNSD || inputs == Layout::kBSND ? 4 : 3;
  if (shape.size() != rank) {
    throw UsageError(fmt::format("{}: shape {} has {} dimensions, layout {} wants {}", flag, npy::ShapeText(shape),
                                 shape.size(), Name(layout), rank));
  }
  if (packed_heads && (heads <= 0 || shape[2] % heads != 0)) {
    throw UsageError(
        fmt::format("{}: shape {}, want a last dimension of {} heads", flag, npy::ShapeText(shape), heads));
  }
  switch (inputs) {
    case Layout::kBSND: return {shape[0], shape[1], shape[2], shape[3]};
    case Layout::kBSH: return {shape[0], shape[1], heads, shape[2] / heads};
    case Layout::kSBH: return {shape[1], shape[0], heads, shape[2] / heads};
    case Layout::kTND: return {1, shape[0], shape[1], shape[2]};
    case Layout::kNTD:
    case Layout::kNSD: return {1, shape[1], shape[0], shape[2]};
    default: return {shape[0], shape[2], shape[1], shape[3]};
  }
}

Layout OutputLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

std::vector<int64_t> StatsShape(Layout layout, const TensorSizes& query) {
  const Layout inputs = InputLayout(layout);
  if (inputs == Layout::kTND || inputs == Layout::kNTD) return {query.seq, query.heads};
  return {query.batch, query.heads, query.seq};
}

int SequenceAxis(Layout layout) {
  switch (InputLayout(layout)) {
    case Layout::kBNSD: return 2;
    case Layout::kSBH:
    case Layout::kTND: return 0;
    default: return 1;
  }
}

int StatsSequenceAxis(Layout layout) { return layout == Layout::kTND ? 0 : 2; }

TensorStrides StridesOf(Layout layout, const TensorSizes& sizes) {
  const int64_t row = sizes.heads * sizes.d;
  switch (InputLayout(layout)) {
    case Layout::kBSND:
    case Layout::kBSH:
    case Layout::kTND: return {.batch = row * sizes.seq, .seq = row, .head = sizes.d};
    case Layout::kSBH: return {.batch = row, .seq = row * sizes.batch, .head = sizes.d};
    default: return {.batch = row * sizes.seq, .seq = sizes.d, .head = sizes.seq * sizes.d};
  }
}

}  // namespace fa::tool
