#include "flags/layout_shapes.h"

#include <fmt/format.h>

#include "flags/failure.h"
#include "npy/npy_array.h"

namespace fa::tool {

std::vector<int64_t> ShapeOf(Layout layout, const TensorSizes& sizes) {
  const auto& [batch, seq, heads, d] = sizes;
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return {batch, heads, seq, d};
    case Layout::kBSND: return {batch, seq, heads, d};
    case Layout::kBSH: return {batch, seq, heads * d};
    case Layout::kSBH: return {seq, batch, heads * d};
    case Layout::kTND: return {seq, heads, d};
  }
  return {};
}

TensorSizes SizesOf(const char* flag, Layout layout, const std::vector<int64_t>& shape, int64_t heads) {
  const bool packed_heads = layout == Layout::kBSH || layout == Layout::kSBH;
  const size_t rank = packed_heads || layout == Layout::kTND ? 3 : 4;
  if (shape.size() != rank) {
    throw UsageError(fmt::format("{}: shape {} has {} dimensions, layout {} wants {}", flag, npy::ShapeText(shape),
                                 shape.size(), Name(layout), rank));
  }
  if (packed_heads && (heads <= 0 || shape[2] % heads != 0)) {
    throw UsageError(
        fmt::format("{}: shape {}, want a last dimension of {} heads", flag, npy::ShapeText(shape), heads));
  }
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return {shape[0], shape[2], shape[1], shape[3]};
    case Layout::kBSND: return {shape[0], shape[1], shape[2], shape[3]};
    case Layout::kBSH: return {shape[0], shape[1], heads, shape[2] / heads};
    case Layout::kSBH: return {shape[1], shape[0], heads, shape[2] / heads};
    case Layout::kTND: return {1, shape[0], shape[1], shape[2]};
  }
  return {};
}

Layout OutputLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

std::vector<int64_t> StatsShape(Layout layout, const TensorSizes& query) {
  if (layout == Layout::kTND) return {query.seq, query.heads};
  return {query.batch, query.heads, query.seq};
}

int SequenceAxis(Layout layout) {
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return 2;
    case Layout::kBSND:
    case Layout::kBSH: return 1;
    case Layout::kSBH:
    case Layout::kTND: return 0;
  }
  return 0;
}

int StatsSequenceAxis(Layout layout) { return layout == Layout::kTND ? 0 : 2; }

TensorStrides StridesOf(Layout layout, const TensorSizes& sizes) {
  const int64_t row = sizes.heads * sizes.d;
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return {.batch = row * sizes.seq, .seq = sizes.d, .head = sizes.seq * sizes.d};
    case Layout::kBSND:
    case Layout::kBSH:
    case Layout::kTND: return {.batch = row * sizes.seq, .seq = row, .head = sizes.d};
    case Layout::kSBH: return {.batch = row, .seq = row * sizes.batch, .head = sizes.d};
  }
  return {};
}

}  // namespace fa::tool
