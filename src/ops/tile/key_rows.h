#ifndef FA_OPS_KEY_ROWS_H_
#define FA_OPS_KEY_ROWS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"

namespace fa::ops {

/// Returns the rows of a tensor, beginning with row (b, n, row), as kernels read and write them.
[[nodiscard]] inline core::kernels::RowBlock BlockAt(const layout::RowsView& tensor, int64_t b, int64_t n,
                                                     int64_t row) {
  return {tensor.At(b, n, row), tensor.rows.dtype, tensor.rows.row};
}
/// Returns row `row` of every head as a block of rows, one per head, beginning with head n.
[[nodiscard]] inline core::kernels::RowBlock HeadsAt(const layout::RowsView& tensor, int64_t b, int64_t n,
                                                     int64_t row) {
  return {tensor.At(b, n, row), tensor.rows.dtype, tensor.rows.head};
}
[[nodiscard]] inline core::kernels::RowTarget TargetAt(const layout::MutableRowsView& tensor, int64_t b, int64_t n,
                                                       int64_t row) {
  return {tensor.At(b, n, row), tensor.rows.dtype, tensor.rows.row};
}

/// Returns the given rows from row `row` on.
[[nodiscard]] inline core::kernels::RowBlock RowsFrom(core::kernels::RowBlock rows, int64_t row) {
  assert(row >= 0);
  if (rows.rows != nullptr) {
    rows.rows += row;
    return rows;
  }
  int64_t whole = row;
  if (rows.paired) {
    // `row` begins a pair, which may lie inside a group of pairs.
    whole = (rows.skip + row) / rows.group * rows.group;
    rows.skip = (rows.skip + row - whole) / 2 * 2;
  }
  rows.data = static_cast<const std::byte*>(rows.data) + whole * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
  return rows;
}

/// Rows of K, its rope part and V as the kernels take them.
struct KeyRows {
  core::kernels::RowBlock k, k_rope, v;
  int64_t first = 0;
  /// Whether each row of k_rope lies right behind its row of k, so that one product may run over both.
  bool rope_behind = false;
  /// The rows of the head, if they lie in runs. In pages, k, k_rope and v begin with row 0 of page 0. The head has
  /// `end` rows.
  layout::HeadRows k_runs = {}, k_rope_runs = {}, v_runs = {};
  int64_t end = 0;

  /// K, KRope and V return the rows from `key` on. The rows are evenly spaced up to KRunEnd, KRopeRunEnd and VRunEnd.
  [[nodiscard]] core::kernels::RowBlock K(int64_t key) const { return From(k, k_runs, key); }
  [[nodiscard]] core::kernels::RowBlock KRope(int64_t key) const { return From(k_rope, k_rope_runs, key); }
  [[nodiscard]] core::kernels::RowBlock V(int64_t key) const { return From(v, v_runs, key); }
  /// Return the end, at most `to`, of the evenly spaced rows from `key` on.
  [[nodiscard]] int64_t KRunEnd(int64_t key, int64_t to) const { return k_runs.RunEnd(key, to, k.fetch_ahead); }
  [[nodiscard]] int64_t KRopeRunEnd(int64_t key, int64_t to) const {
    return k_rope_runs.RunEnd(key, to, k_rope.fetch_ahead);
  }
  [[nodiscard]] int64_t VRunEnd(int64_t key, int64_t to) const { return v_runs.RunEnd(key, to, v.fetch_ahead); }

 private:
  [[nodiscard]] core::kernels::RowBlock From(core::kernels::RowBlock rows, const layout::HeadRows& runs,
                                             int64_t key) const {
    if (!runs.in_runs()) return RowsFrom(rows, key - first);
    assert(key >= 0 && key < end);
    if (!runs.paged()) {
      rows.data = runs.At(key);
      rows.stride = runs.StrideAt(key);
      return rows;
    }
    const int64_t at = runs.Offset(key), ahead = key + rows.fetch_ahead;
    // If the distance to the row ahead is no multiple of the stride, the kernels prefetch nothing.
    const int64_t distance = rows.stride > 0 && ahead < end ? runs.Offset(ahead) - at : 0;
    rows.fetch_ahead = distance != 0 && distance % rows.stride == 0 ? distance / rows.stride : 0;
    rows.data = static_cast<const std::byte*>(rows.data) + at * static_cast<int64_t>(SizeOf(rows.dtype));
    return rows;
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_ROWS_H_
