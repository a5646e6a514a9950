#include "ops/tile/output_rows.h"

#include <cstddef>

namespace fa::ops {

void WriteOutputRows(const layout::MutableRowsView& out, int64_t dv, int64_t row_offset, const Strip& strip,
                     const FinishedStrip& finished, const OutputQuantization* quantization) {
  const StripRows& lanes = strip.lanes;
  const auto row_of = [&](int64_t i) { return out.At(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]); };
  LaneArray<void*> rows;
  const bool staged = quantization != nullptr;
  for (int64_t i = 0; i < lanes.count; ++i) {
    rows[i] = staged ? static_cast<void*>(finished.staging + i * dv) : row_of(i);
  }
  strip.kernels->write_output(finished.state, dv, finished.multiplier, finished.zero, rows,
                              staged ? DType::kF32 : out.rows.dtype, lanes.count);
  if (!staged) return;
  for (int64_t i = 0; i < lanes.count; ++i) {
    core::kernels::Quantization values = quantization->values;
    if (values.per_column) {
      const int64_t first = lanes.head[i] * dv * static_cast<int64_t>(SizeOf(values.dtype));
      values.scale = static_cast<const std::byte*>(values.scale) + first;
      if (values.offset != nullptr) values.offset = static_cast<const std::byte*>(values.offset) + first;
    }
    quantization->kernels->quantize(finished.staging + i * dv, dv, values, reinterpret_cast<int8_t*>(row_of(i)));
  }
}

}  // namespace fa::ops
