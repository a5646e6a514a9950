#ifndef FA_LAYOUT_ROWS_H_
#define FA_LAYOUT_ROWS_H_

#include <cassert>
#include <cstdint>

#include "fa/tensor.h"

namespace fa::layout {

/// The layout of the rows of a tensor. Element (b, n, s, d) is at b*batch + n*head + s*row + d. For TND `batch` is 0
/// and s counts from the start of the packed tensor. The innermost stride is 1.
struct Rows {
  DType dtype = DType::kF32;
  int64_t batch = 0, head = 0, row = 0;  ///< strides in elements

  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t s) const {
    assert(b >= 0 && n >= 0 && s >= 0);
    return b * batch + n * head + s * row;
  }
};

/// The layout of a statistic. The statistic of (b, n, s) has `copies` equal values, which lie copy_stride elements
/// apart. Without a dimension of copies there is 1 copy. The device stores 8.
struct Stats {
  int64_t batch = 0, head = 0, row = 0;
  int64_t copies = 1, copy_stride = 0;

  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t s) const {
    assert(b >= 0 && n >= 0 && s >= 0);
    return b * batch + n * head + s * row;
  }
};

}  // namespace fa::layout

#endif  // FA_LAYOUT_ROWS_H_
