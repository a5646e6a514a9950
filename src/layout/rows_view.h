#ifndef FA_LAYOUT_ROWS_VIEW_H_
#define FA_LAYOUT_ROWS_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fa/tensor.h"
#include "layout/rows.h"

namespace fa::layout {

/// The rows of a tensor during one run of a plan: their layout, which the plan knows, and their address. If data is
/// null, the call has no such tensor, or the tensor has no elements.
struct RowsView {
  RowsView() = default;
  RowsView(const void* memory, const Rows& where) : data(static_cast<const std::byte*>(memory)), rows(where) {}

  const std::byte* data = nullptr;
  Rows rows;

  /// Returns the address of element `column` of row (b, n, s).
  [[nodiscard]] const std::byte* At(int64_t b, int64_t n, int64_t s, int64_t column = 0) const {
    return data + (rows.Offset(b, n, s) + column) * static_cast<int64_t>(SizeOf(rows.dtype));
  }
};

/// The rows of an output during one run of a plan.
struct MutableRowsView {
  MutableRowsView() = default;
  MutableRowsView(void* memory, const Rows& where) : data(static_cast<std::byte*>(memory)), rows(where) {}

  std::byte* data = nullptr;
  Rows rows;

  [[nodiscard]] std::byte* At(int64_t b, int64_t n, int64_t s, int64_t column = 0) const {
    return data + (rows.Offset(b, n, s) + column) * static_cast<int64_t>(SizeOf(rows.dtype));
  }
  /// Writes 0 to the first `columns` elements of a row.
  void Clear(int64_t b, int64_t n, int64_t s, int64_t columns) const {
    std::memset(At(b, n, s), 0, static_cast<size_t>(columns) * SizeOf(rows.dtype));
  }
  operator RowsView() const { return {data, rows}; }  // NOLINT(google-explicit-constructor)
};

/// The f32 values of a tensor during one run of a plan, one value per (b, n, s).
struct StatsView {
  StatsView() = default;
  StatsView(const void* memory, const Stats& values) : data(static_cast<const float*>(memory)), where(values) {}

  const float* data = nullptr;
  Stats where;

  [[nodiscard]] float At(int64_t b, int64_t n, int64_t s) const { return data[where.Offset(b, n, s)]; }
};

/// The f32 values of an output during one run of a plan.
struct MutableStatsView {
  MutableStatsView() = default;
  MutableStatsView(void* memory, const Stats& values) : data(static_cast<float*>(memory)), where(values) {}

  float* data = nullptr;
  Stats where;

  /// Writes `value` to all copies of the statistic of (b, n, s).
  void Write(int64_t b, int64_t n, int64_t s, float value) const {
    float* to = data + where.Offset(b, n, s);
    for (int64_t copy = 0; copy < where.copies; ++copy) to[copy * where.copy_stride] = value;
  }
};

}  // namespace fa::layout

#endif  // FA_LAYOUT_ROWS_VIEW_H_
