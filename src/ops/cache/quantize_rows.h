#ifndef FA_OPS_QUANTIZE_ROWS_H_
#define FA_OPS_QUANTIZE_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/cache/bind_pages.h"
#include "ops/cache/row_copy.h"

namespace fa::ops {

/// Returns whether rows of this type are quantised when they are written into a cache of that type.
[[nodiscard]] bool Quantizes(DType rows, DType cache);

/// How rows of floats become elements of 8 bits. Either the caller gives the scale, or each head of each row gets a
/// scale of its own, which is written to the cache of scales.
struct RowQuantizer {
  DType from = DType::kF32, to = DType::kI8;
  std::array<RowDim, RowCopy::kLoops> dims;  ///< heads, chunks of a head, columns of a chunk; strides in bytes
  bool given = false;
  int64_t given_head = 0;                                 ///< bytes from a head's given scale to the next head's
  int64_t scale_page = 0, scale_head = 0, scale_row = 0;  ///< strides of the cache of scales, in bytes
};

/// The tensors of keys, or of values, with their names.
struct QuantizedTensors {
  NamedTensor rows, cache;
  NamedTensor scale;        ///< f32 [1] or [N], or absent
  NamedTensor scale_cache;  ///< f32 [Bn, N, Bs, 1], or absent
};

/// Checks that exactly one of the two scales is given and that it has the right shape.
[[nodiscard]] Result<RowQuantizer> BindQuantizer(const QuantizedTensors& tensors, const BoundPages& pages);

/// Checks that no scale is there, because the rows are copied.
[[nodiscard]] Status CheckNoScales(const QuantizedTensors& tensors);

/// Checks that the numbers of a given scale are positive and finite.
[[nodiscard]] Status CheckGivenScale(const NamedTensor& scale);

/// A row to quantise at `from`, and its place in the cache at `to`. The scales that the caller gives lie at `given`.
/// Without given scales, the scales of the row are written to `own`.
struct QuantizedRow {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  const std::byte* given = nullptr;
  std::byte* own = nullptr;
};

/// Writes one row: code = saturate(round(x / scale)), rounded to the nearest code, ties to even.
void QuantizeRow(const RowQuantizer& by, const QuantizedRow& row);

}  // namespace fa::ops

#endif  // FA_OPS_QUANTIZE_ROWS_H_
