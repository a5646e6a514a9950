#include "layout/bind_layout.h"

#include "core/saturating.h"

namespace fa::layout {

Dims FilledStride(const Dims& shape, const Dims& stride) {
  if (!stride.empty() || shape.empty()) return stride;
  Dims dense = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    dense[i] = step;
    // If a dimension is empty, it counts as 1. Otherwise the strides before it would be 0, which means a broadcast.
    if (shape[i] > 1) step = core::SaturatedProduct(step, shape[i]);  // saturates, since the shape may be unchecked
  }
  return dense;
}

int64_t SpanBytes(const TensorView& tensor) {
  const Dims stride = FilledStride(tensor.shape, tensor.stride);
  int64_t last = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * stride[i];
  }
  return (last + 1) * static_cast<int64_t>(SizeOf(tensor.dtype));
}

Rows RowsOf(const TensorView& tensor, const Axes& axes, int64_t head_size) {
  const Dims stride = FilledStride(tensor.shape, tensor.stride);
  Rows rows;
  rows.dtype = tensor.dtype;
  rows.batch = axes.batch < 0 ? 0 : stride[axes.batch];
  rows.head = axes.fused() ? head_size : stride[axes.head];
  // A single row's stride is never used. head_size stands for it, so that the rows count as dense.
  rows.row = tensor.shape[axes.seq] > 1 ? stride[axes.seq] : head_size;
  return rows;
}

Stats StatsOf(const TensorView& tensor, bool packed) {
  const Dims stride = FilledStride(tensor.shape, tensor.stride);
  const int rank = packed ? 2 : 3;
  Stats stats;
  stats.batch = packed ? 0 : stride[0];
  stats.head = stride[1];
  stats.row = packed ? stride[0] : stride[2];
  if (tensor.shape.rank() > rank) {
    stats.copies = tensor.shape[rank];
    stats.copy_stride = stride[rank];
  }
  return stats;
}

}  // namespace fa::layout
