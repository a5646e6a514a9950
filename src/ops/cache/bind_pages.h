#ifndef FA_OPS_BIND_PAGES_H_
#define FA_OPS_BIND_PAGES_H_

#include <array>
#include <cstdint>

#include "fa/cache_rows.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/cache/row_copy.h"

namespace fa::ops {

/// A tensor of a call with its name in errors.
struct NamedTensor {
  const char* name;
  TensorView tensor;
};

/// The rows of a tensor and the pages of a cache whose rows have the same elements. Strides are in bytes.
struct BoundPages {
  int64_t rows = 0, row_stride = 0;
  int64_t pages = 0, page_rows = 0;
  int64_t page_stride = 0, page_row_stride = 0;
  int64_t row_bytes = 0;
  std::array<RowDim, RowCopy::kLoops> dims;  ///< heads, chunks of a head, columns of a chunk
  RowCopy copy;                              ///< unused if the types differ

  /// Returns the offset of a row of a page.
  [[nodiscard]] int64_t PlaceOf(int64_t page, int64_t row) const { return page * page_stride + row * page_row_stride; }
};

/// Checks rows [T, N, D] and a cache of this form. Returns how a row is copied into the cache or, if `from_cache`, out
/// of it. No two elements of the tensor that is written may share memory. If `converts`, the types may differ.
[[nodiscard]] Result<BoundPages> BindPages(const NamedTensor& rows, const NamedTensor& cache, CacheForm form,
                                           bool from_cache, bool converts = false);

/// Checks that both caches have pages of one size, because a slot is a place in both.
[[nodiscard]] Status CheckSamePageRows(const BoundPages& key, const BoundPages& value);

/// Checks that `form` is a value of the enumeration.
[[nodiscard]] Status CheckForm(CacheForm form);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_PAGES_H_
