#ifndef FA_OPS_KEY_ROWS_H_
#define FA_OPS_KEY_ROWS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/tile/page_table.h"

namespace fa::ops {

/// The same rows from row `row` on.
[[nodiscard]] inline core::kernels::RowBlock RowsFrom(core::kernels::RowBlock rows, int64_t row) {
  assert(row >= 0);
  if (rows.rows != nullptr) {
    rows.rows += row;
    return rows;
  }
  // Blocks begin at a whole pair of rows.
  const int64_t words = rows.paired ? row / 2 * 2 : row;
  rows.data = static_cast<const std::byte*>(rows.data) + words * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
  return rows;
}

/// Rows of K, its rope part and V for the keys from `first` on: as the kernels take them.
struct KeyRows {
  core::kernels::RowBlock k, k_rope, v;
  int64_t first = 0;
  bool rope_behind = false;    ///< each row of k_rope follows the one of k: one product may run over both
  PageTable k_pages, v_pages;  ///< decode: k and v are row 0 of page 0

  /// Evenly apart up to KRunEnd.
  [[nodiscard]] core::kernels::RowBlock K(int64_t key) const {
    return k_pages.table != nullptr ? k_pages.At(k, key) : RowsFrom(k, key - first);
  }
  [[nodiscard]] core::kernels::RowBlock KRope(int64_t key) const { return RowsFrom(k_rope, key - first); }
  [[nodiscard]] core::kernels::RowBlock V(int64_t key) const {
    return v_pages.table != nullptr ? v_pages.At(v, key) : RowsFrom(v, key - first);
  }
  /// The first key, at most `end`, at which the rows from `key` on no longer lie evenly apart.
  [[nodiscard]] int64_t KRunEnd(int64_t key, int64_t end) const { return RunEnd(k_pages, k.fetch_ahead, key, end); }
  [[nodiscard]] int64_t VRunEnd(int64_t key, int64_t end) const { return RunEnd(v_pages, v.fetch_ahead, key, end); }

 private:
  [[nodiscard]] static int64_t RunEnd(const PageTable& pages, int64_t fetch_ahead, int64_t key, int64_t end) {
    return pages.table != nullptr ? pages.RunEnd(key, end, fetch_ahead) : end;
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_ROWS_H_
