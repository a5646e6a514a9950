#ifndef FA_OPS_QUANTIZED_ROWS_H_
#define FA_OPS_QUANTIZED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"

namespace fa::ops {

/// How the scales of a row of quantised keys are stored.
enum class RowScale : uint8_t {
  kNone,  ///< the numbers have no scales
  kF32,
  kE8M0,  ///< a byte e stands for 2^(e - 127), and 255 for NaN
};

/// Where the columns of a row of quantised keys lie. A row stands for `columns` numbers, each times the scale of its
/// tile, followed by `rope` columns as they are. The parts may lie at any address.
struct QuantizedRow {
  DType dtype = DType::kI8;  ///< type of the numbers: kI8 or kF8E4M3
  int64_t columns = 0;       ///< number of columns that have scales
  int64_t tile = 0;          ///< number of columns per scale; the last tile may be shorter
  RowScale scale = RowScale::kNone;
  DType rope_type = DType::kBF16;  ///< kF32, kF16 or kBF16
  int64_t rope = 0;
  int64_t numbers_at = 0, rope_at = 0, scales_at = 0;  ///< where each part begins, in bytes from the row's first byte

  /// Returns the number of columns for which a row stands.
  [[nodiscard]] int64_t Width() const { return columns + rope; }
  [[nodiscard]] int64_t Tiles() const;
  /// Returns the number of bytes up to the end of the part that comes last.
  [[nodiscard]] int64_t Bytes() const;
  /// Returns how many floats WidenRow needs as scratch.
  [[nodiscard]] int64_t ScratchFloats() const { return 2 * Width() + Tiles(); }
};

/// Widens the row at `from` and writes its first `count` columns to `to`. Numbers are multiplied by their scales in
/// f32. 16-bit results are rounded once, to nearest even.
/// @param count    at most row.Width()
/// @param type     kF32, or the row's rope_type; without rope columns any float type
/// @param scratch  row.ScratchFloats() floats
/// @param pairs    if type is kBF16, may be a strip of pairs. Rounding is then faster, and may flush subnormal results,
///                 which products of pairs read as 0.
void WidenRow(const core::kernels::RowFunctions& kernels, const QuantizedRow& row, const std::byte* from, int64_t count,
              float* scratch, DType type, std::byte* to, const core::kernels::StripKernels* pairs = nullptr);

}  // namespace fa::ops

#endif  // FA_OPS_QUANTIZED_ROWS_H_
