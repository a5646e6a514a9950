#include "ops/tile/output_rows.h"

#include <cstddef>

namespace fa::ops {

void WriteOutputRows(const BoundAttention& bound, const AttentionArgs& args, const Strip& strip,
                     const FinishedStrip& finished, const OutputQuantization* quantization) {
  const StripRows& lanes = strip.lanes;
  const int64_t dv = bound.problem.dv;
  const int64_t row_offset = bound.problem.sequences[static_cast<size_t>(lanes.sequence)].q_offset;
  const auto element = static_cast<int64_t>(SizeOf(bound.out.dtype));
  const auto row_of = [&](int64_t i) {
    return static_cast<std::byte*>(args.out.data) +
           bound.out.Offset(lanes.sequence, lanes.head[i], row_offset + lanes.row[i]) * element;
  };
  void* rows[kMaxStripWidth];
  const bool staged = quantization != nullptr;
  for (int64_t i = 0; i < lanes.count; ++i) {
    rows[i] = staged ? static_cast<void*>(finished.staging + i * dv) : row_of(i);
  }
  strip.kernels->write_output(finished.state, dv, finished.multiplier, finished.zero, rows,
                              staged ? DType::kF32 : bound.out.dtype, lanes.count);
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
