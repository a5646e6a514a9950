#ifndef FA_OPS_ANTIQUANT_H_
#define FA_OPS_ANTIQUANT_H_

#include <cstddef>

#include "fa/decode_attention.h"
#include "ops/inference/bind_decode.h"

namespace fa::ops {

/// Workspace for the scales and offsets of a decode, as f32.
[[nodiscard]] size_t AntiquantBytes(const BoundDecode& bound);

/// Reads scales and offsets into `floats`, and records in `source` where they are.
void ReadAntiquant(const BoundDecode& bound, const DecodeAttentionArgs& args, float* floats, KeySource& source);

}  // namespace fa::ops

#endif  // FA_OPS_ANTIQUANT_H_
