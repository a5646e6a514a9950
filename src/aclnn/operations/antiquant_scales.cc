#include "aclnn/operations/antiquant_scales.h"

#include <optional>
#include <string>

#include "aclnn/operations/infer_layouts.h"
#include "aclnn/runtime/strided_copy.h"

namespace fa::aclnn {
namespace {

std::string TextOf(const Dims& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? "," : "") + std::to_string(size);
  return text + "]";
}

// Drops leading dimensions of size 1 until `rank` dimensions are left, or the first dimension has another size.
void DropLeadingOnes(int rank, Dims* shape, Dims* stride) {
  while (shape->rank() > rank && (*shape)[0] == 1) {
    Dims shorter, strides;
    for (int i = 1; i < shape->rank(); ++i) {
      shorter.push_back((*shape)[i]);
      strides.push_back((*stride)[i]);
    }
    *shape = shorter;
    *stride = strides;
  }
}

// A scale in the form for the library, and the text of an error for the shape that the mode requires.
struct Candidate {
  std::optional<TensorView> view;  ///< absent if the shape does not fit
  std::string want;
};

// Reads a scale of mode 0 or 2: one number, one number per head, or one number per column.
Candidate PerHeadOrColumn(TensorView view, Dims shape, Dims stride, bool per_head, const KeySizes& keys) {
  DropLeadingOnes(1, &shape, &stride);
  const int last = shape.rank() - 1;
  const std::string heads = "[" + std::to_string(keys.heads);
  const int64_t step = stride[last];
  if (per_head) {
    view.shape = {1, keys.heads, 1, 1};
    view.stride = {0, step, 0, 1};
    return {shape == Dims{keys.heads} ? std::optional(view) : std::nullopt, heads + "]"};
  }
  const std::string want = "[1] or " + heads + ",1," + std::to_string(keys.columns) + "]";
  if (shape == Dims{1}) {
    view.shape = {1, 1, 1, 1};
    view.stride = {0, 0, 0, 1};
    return {view, want};
  }
  view.shape = {1, keys.heads, 1, keys.columns};
  const bool one_row = shape.rank() == 1 && shape[0] == keys.heads * keys.columns;
  view.stride = {0, one_row ? keys.columns * step : stride[0], 0, step};
  const bool of_heads = shape == Dims{keys.heads, keys.columns} || shape == Dims{keys.heads, 1, keys.columns};
  return {one_row || of_heads ? std::optional(view) : std::nullopt, want};
}

// Reads a scale of any other mode: one number per row, or per row and head.
Candidate PerRow(TensorView view, Dims shape, Dims stride, bool per_head, bool of_pages, const KeySizes& keys) {
  const int rows = per_head ? 2 : 1;
  DropLeadingOnes(rows + 1, &shape, &stride);
  const bool of_sequences = keys.paged && !of_pages;
  const int64_t batch = of_sequences ? keys.sequences : keys.batch;
  const int64_t least = of_sequences ? keys.tokens : keys.rows;
  const std::string want = "[" + std::to_string(batch) + (per_head ? "," + std::to_string(keys.heads) : "") +
                           (of_pages ? "," : ",>=") + std::to_string(least) + "]";
  const bool fits = shape.rank() == rows + 1 && shape[0] == batch && (!per_head || shape[1] == keys.heads) &&
                    (of_pages ? shape[rows] == least : shape[rows] >= least);
  if (!fits) return {std::nullopt, want};
  view.shape = {shape[0], per_head ? shape[1] : 1, shape[rows], 1};
  view.stride = {stride[0], per_head ? stride[1] : 0, stride[rows], 1};
  return {view, want};
}

}  // namespace

KeySizes KeySizesOf(const TensorView& keys, Layout layout, int64_t heads, bool paged, int64_t block_size) {
  const Dims& shape = keys.shape;
  const int64_t packing = keys.dtype == DType::kI4x8 ? 8 : 1;
  KeySizes sizes = {.heads = heads, .paged = paged, .packed = IsPacked(layout) && !paged};
  const int rank = shape.rank();
  if (rank < 3 || rank > Dims::kMaxRank) return sizes;
  sizes.batch = shape[0];
  if (paged && rank == 5) {
    sizes.rows = shape[3];
    sizes.columns = shape[2] * shape[4] * packing;
  } else if (rank == 4) {
    const bool heads_first =
        paged ? shape[1] == heads && (block_size == 0 || shape[2] == block_size) : HeadsBeforeRows(layout);
    sizes.rows = shape[heads_first ? 2 : 1];
    sizes.columns = shape[3] * packing;
  } else if (sizes.packed || (layout == Layout::kNSD && !paged)) {
    sizes.batch = 1;
    sizes.rows = shape[1];
    sizes.columns = shape[2] * packing;
  } else {
    sizes.rows = shape[1];
    sizes.columns = heads > 0 ? shape[2] * packing / heads : 0;
  }
  return sizes;
}

Result<TensorView> ScaleOfMode(const char* name, const TensorView& scale, const char* mode_name, int64_t mode,
                               const KeySizes& keys) {
  if (scale.data == nullptr) return scale;
  const bool of_pages = mode == 4 || mode == 5;
  if (mode < 0 || mode > 5 || (!keys.paged && of_pages) || (keys.packed && PerToken(mode))) {
    const char* want = keys.paged ? "0 to 5" : keys.packed ? "0 or 2 (packed keys)" : "0 to 3";
    const char* served = mode == 6 || mode == 8 ? " is not served (scales of type E8M0)" : "";
    return Status::InvalidArgument(std::string(mode_name) + "=" + std::to_string(mode) + served + ", want " + want);
  }
  const Dims shape = scale.shape.rank() == 0 ? Dims{1} : scale.shape;
  const Dims stride = scale.stride.empty() ? DenseStride(shape) : scale.stride;
  const bool per_head = mode == 2 || mode == 3 || mode == 5;
  const Candidate found = mode == 0 || mode == 2 ? PerHeadOrColumn(scale, shape, stride, per_head, keys)
                                                 : PerRow(scale, shape, stride, per_head, of_pages, keys);
  if (found.view) return *found.view;
  return Status::InvalidArgument(std::string(name) + ".shape=" + TextOf(scale.shape) + ", want " + found.want + " (" +
                                 mode_name + " " + std::to_string(mode) + ")");
}

Result<TensorView> ScaleOfQuery(const char* name, const TensorView& scale, const TensorView& query, Layout layout,
                                int64_t heads) {
  if (scale.data == nullptr) return scale;
  Dims want;
  for (int dim = 0; dim + 1 < query.shape.rank(); ++dim) want.push_back(query.shape[dim]);
  if (want.rank() == 2 && !IsPacked(layout) && layout != Layout::kNSD) want.push_back(heads);
  const Dims stride = scale.stride.empty() ? DenseStride(scale.shape) : scale.stride;
  TensorView view = scale;
  view.shape = want;
  view.stride = DenseStride(want);
  int64_t numbers = 1;
  for (const int64_t size : want) numbers *= size;
  if (scale.shape == Dims{numbers}) {
    for (int dim = 0; dim < want.rank(); ++dim) view.stride[dim] *= stride[0];
    return view;
  }
  int from = 0;
  bool fits = true;
  for (int dim = 0; dim < want.rank(); ++dim) {
    if (want[dim] == 1) continue;
    while (from < scale.shape.rank() && scale.shape[from] == 1) ++from;
    fits = fits && from < scale.shape.rank() && scale.shape[from] == want[dim];
    if (fits) view.stride[dim] = stride[from++];
  }
  for (; from < scale.shape.rank(); ++from) fits = fits && scale.shape[from] == 1;
  if (fits) return view;
  return Status::InvalidArgument(std::string(name) + ".shape=" + TextOf(scale.shape) + ", want " + TextOf(want));
}

}  // namespace fa::aclnn
