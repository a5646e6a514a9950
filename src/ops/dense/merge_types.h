#ifndef FA_OPS_MERGE_TYPES_H_
#define FA_OPS_MERGE_TYPES_H_

#include <cstdint>

#include "fa/half.h"

namespace fa::ops {

// The types of outputs that are merged, with their conversions from and to f32.

struct MergedF32 {
  using Element = float;
  static float Load(float x) { return x; }
  static float Store(float x) { return x; }
};
struct MergedF16 {
  using Element = uint16_t;
  static float Load(uint16_t x) { return F32FromF16(x); }
  static uint16_t Store(float x) { return F16FromF32(x); }
};
struct MergedBF16 {
  using Element = uint16_t;
  static float Load(uint16_t x) { return F32FromBf16(x); }
  static uint16_t Store(float x) { return Bf16FromF32(x); }
};

}  // namespace fa::ops

#endif  // FA_OPS_MERGE_TYPES_H_
