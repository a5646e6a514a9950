#ifndef FA_CHECK_ELEMENT_H_
#define FA_CHECK_ELEMENT_H_

#include <cstdint>

#include "fa/tensor.h"

namespace fa::check {

/// Returns element `index` of an array of f32, f16 or bf16.
[[nodiscard]] double LoadElement(const void* data, DType dtype, int64_t index);
/// Stores a value, rounded to nearest even. In f16 a value that is too large becomes infinity.
void StoreElement(void* data, DType dtype, int64_t index, float value);

/// Returns half the distance from 1 to the next number: 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16.
[[nodiscard]] double UnitRoundoff(DType dtype);

}  // namespace fa::check

#endif  // FA_CHECK_ELEMENT_H_
