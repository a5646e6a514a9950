#ifndef FA_OPS_OUTPUT_SCALES_H_
#define FA_OPS_OUTPUT_SCALES_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/int8_kernel_types.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/tile/output_rows.h"

namespace fa::ops {

/// What says how an output is quantised: quant_scale2 and quant_offset2 with the types of q and out.
struct OutputScales {
  DType q, out;
  const TensorView &scale, &offset;
};

/// The same, bound.
struct BoundOutputScales {
  bool quantised = false;  ///< int8 output
  int64_t values = 1;      ///< 1, or one for every column of every head
  bool strided = false;    ///< they do not lie one after another: a run packs them
};

/// Checks them for `columns` of all heads. Values count in the order of the tensor's shape, which may be any shape with
/// any strides.
[[nodiscard]] Result<BoundOutputScales> BindOutputScales(const OutputScales& args, int64_t columns);

/// Bytes of workspace that ReadOutputScales packs into.
[[nodiscard]] size_t OutputScaleBytes(const BoundOutputScales& bound);

/// In a run: `scale` and `offset` as the kernels read them.
/// @param memory  OutputScaleBytes, 4-byte aligned
[[nodiscard]] OutputQuantisation ReadOutputScales(const BoundOutputScales& bound, const TensorView& scale,
                                                  const TensorView& offset, const core::kernels::Int8Table& kernels,
                                                  std::byte* memory);

}  // namespace fa::ops

#endif  // FA_OPS_OUTPUT_SCALES_H_
