#ifndef FA_TESTS_REFERENCE_HALF_H_
#define FA_TESTS_REFERENCE_HALF_H_

#include <cstdint>

namespace reference {

/// The number formats of tensors, implemented from their definitions (sign, exponent, fraction) without code of the
/// library.
enum class Format : uint8_t { kF32, kF16, kBF16 };

/// Returns the exact value of a 16-bit pattern.
[[nodiscard]] double Decode16(Format format, uint16_t bits);
/// Returns the nearest 16-bit number; ties go to the even one. NaN stays NaN, and too large numbers become inf.
[[nodiscard]] uint16_t Encode16(Format format, double value);
/// Returns the nearest number of the format, as double.
[[nodiscard]] double RoundTo(Format format, double value);
/// Returns the unit roundoff, which is half the distance between 1 and the next number.
[[nodiscard]] double UnitRoundoff(Format format);
/// Returns half the smallest positive number, which is the rounding error next to 0.
[[nodiscard]] double SmallestError(Format format);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_HALF_H_
