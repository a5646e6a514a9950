#ifndef FA_OPS_KEY_ROWS_H_
#define FA_OPS_KEY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// Rows of K, its rope part and V for the keys from `first` on: as the kernels take them.
struct KeyRows {
  core::kernels::RowBlock k, k_rope, v;
  int64_t first = 0;

  [[nodiscard]] core::kernels::RowBlock K(int64_t key) const { return From(k, key - first); }
  [[nodiscard]] core::kernels::RowBlock KRope(int64_t key) const { return From(k_rope, key - first); }
  [[nodiscard]] core::kernels::RowBlock V(int64_t key) const { return From(v, key - first); }

 private:
  [[nodiscard]] static core::kernels::RowBlock From(core::kernels::RowBlock rows, int64_t row) {
    // Blocks begin at a whole pair of rows.
    const int64_t bytes = rows.paired ? row / 2 * 2 : row;
    rows.data =
        static_cast<const std::byte*>(rows.data) + bytes * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
    return rows;
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_ROWS_H_
