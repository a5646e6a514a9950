#ifndef FA_OPS_OUTPUT_SCALES_H_
#define FA_OPS_OUTPUT_SCALES_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/int8/int8_kernel_types.h"
#include "fa/mask.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/tile/output_rows.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The arguments that say how an output is quantized: quant_scale2 and quant_offset2, with the types of q and out.
struct OutputScales {
  DType q, out;
  const TensorView &scale, &offset;
};

/// The bound scales of an output.
struct BoundOutputScales {
  bool quantized = false;  ///< whether the output is int8
  int64_t values = 1;      ///< number of scales: 1, or the number of columns of all heads
  bool strided = false;    ///< whether the values are not contiguous, so that a run packs them
};

/// Checks the scales of an output with `columns` columns, counted over all heads. A tensor of scales may have any shape
/// and strides; its values are read in the order of its shape.
[[nodiscard]] Result<BoundOutputScales> BindOutputScales(const OutputScales& args, int64_t columns);

/// Refuses an offset, as the NPU does, if `mask` leaves rows without keys. With an offset, rows without keys would not
/// be 0.
[[nodiscard]] Status CheckOffsetRows(const TensorView& offset, const Mask& mask,
                                     const tiling::AttentionProblem& problem);

/// Returns the number of bytes of workspace that ReadOutputScales packs into.
[[nodiscard]] size_t OutputScaleBytes(const BoundOutputScales& bound);

/// Reads `scale` and `offset` in a run, and returns them as the kernels take them.
/// @param memory  has OutputScaleBytes bytes and is 4-byte aligned
[[nodiscard]] OutputQuantization ReadOutputScales(const BoundOutputScales& bound, const TensorView& scale,
                                                  const TensorView& offset, const core::kernels::Int8Table& kernels,
                                                  std::byte* memory);

}  // namespace fa::ops

#endif  // FA_OPS_OUTPUT_SCALES_H_
