#ifndef FA_OPS_OUTPUT_ROWS_H_
#define FA_OPS_OUTPUT_ROWS_H_

#include <cstdint>

#include "core/kernels/int8/int8_kernel_types.h"
#include "layout/rows_view.h"
#include "ops/tile/strip.h"

namespace fa::ops {

/// An int8 output.
struct OutputQuantization {
  core::kernels::Quantization values;  ///< of head 0
  const core::kernels::Int8Table* kernels = nullptr;
};

/// The output state of a finished strip.
struct FinishedStrip {
  const float* state = nullptr;
  const float* multiplier = nullptr;  ///< per lane
  const int32_t* zero = nullptr;      ///< per lane: not 0 where the row is 0
  float* staging = nullptr;           ///< kMaxStripWidth rows of dv floats, for an int8 output
};

/// Writes the rows of a strip, of dv columns, to `out`, rounded once to its type.
/// @param row_offset    the first row of the strip's sequence in `out`
/// @param quantization  null: the output is of a float type
void WriteOutputRows(const layout::MutableRowsView& out, int64_t dv, int64_t row_offset, const Strip& strip,
                     const FinishedStrip& finished, const OutputQuantization* quantization);

}  // namespace fa::ops

#endif  // FA_OPS_OUTPUT_ROWS_H_
