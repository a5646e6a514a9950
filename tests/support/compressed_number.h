#ifndef FA_TESTS_SUPPORT_COMPRESSED_NUMBER_H_
#define FA_TESTS_SUPPORT_COMPRESSED_NUMBER_H_

#include <cstddef>
#include <cstdint>

#include "fa/tensor.h"

namespace fa::test {

/// Returns the number that a code of type i8, f8e4m3, f8e5m2 or i4x8 stands for. i4x8 uses the lower four bits.
[[nodiscard]] double CompressedNumber(DType format, uint8_t code);
/// Returns the code of type i8 or f8e4m3 that is nearest to a number; ties go to the even code. Numbers beyond the
/// largest code saturate. NaN becomes 0 (i8) or NaN (f8e4m3).
[[nodiscard]] uint8_t NearestCode(DType format, float number);
/// Stores the code as element `column` of a row.
void StoreCode(DType format, std::byte* row, int64_t column, uint8_t code);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_COMPRESSED_NUMBER_H_
