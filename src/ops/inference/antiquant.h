#ifndef FA_OPS_ANTIQUANT_H_
#define FA_OPS_ANTIQUANT_H_

#include <cstddef>

#include "fa/tensor.h"
#include "ops/inference/bind_decode.h"

namespace fa::ops {

/// Returns the bytes of workspace for the scales and offsets of a decode, as f32.
[[nodiscard]] size_t AntiquantBytes(const BoundDecode& bound);

/// The tensors of scales and offsets among the arguments.
struct AntiquantTensors {
  const TensorView &scale, &offset;
};

/// Reads scales and offsets into `floats`, and stores their addresses in `rows`.
void ReadAntiquant(const BoundDecode& bound, const AntiquantTensors& tensors, float* floats, ForwardRows& rows);

}  // namespace fa::ops

#endif  // FA_OPS_ANTIQUANT_H_
