#ifndef FA_OPS_OUTPUT_ROWS_H_
#define FA_OPS_OUTPUT_ROWS_H_

#include <cstdint>

#include "core/kernels/int8/int8_kernel_types.h"
#include "layout/rows_view.h"
#include "ops/tile/strip.h"

namespace fa::ops {

/// How an int8 output is quantized.
struct OutputQuantization {
  core::kernels::Quantization values;  ///< scales, beginning with head 0
  const core::kernels::Int8Table* kernels = nullptr;
};

/// The output state of a finished strip.
struct FinishedStrip {
  const float* state = nullptr;
  const float* multiplier = nullptr;  ///< one factor per lane
  const int32_t* zero = nullptr;      ///< one per lane: not 0 if the row is to be written as 0
  float* staging = nullptr;           ///< kMaxStripWidth rows of dv floats, for an int8 output
};

/// Writes the rows of a strip, each with dv columns, to `out`, rounded once to its type.
/// @param row_offset    the first row of the strip's sequence in `out`
/// @param quantization  null if the output is of a float type
void WriteOutputRows(const layout::MutableRowsView& out, int64_t dv, int64_t row_offset, const Strip& strip,
                     const FinishedStrip& finished, const OutputQuantization* quantization);

}  // namespace fa::ops

#endif  // FA_OPS_OUTPUT_ROWS_H_
