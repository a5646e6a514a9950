#ifndef FA_HALF_H_
#define FA_HALF_H_

/// @file
/// Conversions between f32 and the 16-bit types, whose tensors hold bits.
/// @code{.cpp}
/// const std::vector<float> values(8 * 128 * 64, 0.1F);
/// std::vector<uint16_t> bits(values.size());
/// std::transform(values.begin(), values.end(), bits.begin(), fa::Bf16FromF32);
/// const fa::TensorView q = fa::View(bits, fa::DType::kBF16, {1, 8, 128, 64});
/// const float first = fa::F32FromBf16(bits[0]);
/// @endcode

#include <bit>
#include <cstdint>

namespace fa {

// The functions below round to nearest even, whatever the thread's rounding mode; from 16 bits to f32 nothing is
// rounded. A NaN stays a (quiet) NaN with the top bits of its payload. A number that is too large becomes infinity.

/// Returns the f32 that has the value of a bf16.
[[nodiscard]] constexpr float F32FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Returns the nearest bf16.
[[nodiscard]] constexpr uint16_t Bf16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  // Adds 0x7FFF, plus 1 if the last bit that is kept is 1. The sum carries into that bit exactly if the value rounds
  // up.
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// Returns the f32 that has the value of an f16.
[[nodiscard]] constexpr float F32FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {
    // Zero or subnormal: mantissa * 2^-24 is exact in f32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x00400000u : 0u));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Returns the nearest f16.
[[nodiscard]] constexpr uint16_t F16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 (halfway to 2^16) and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is subnormal: factor * 2^-24. The factor is the f32's significand, shifted right by 126 -
    // exponent bits. A shift by 25 bits already gives 0 for every significand.
    const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t shift = magnitude < 0x32800000u ? 25 : 126 - (magnitude >> 23);
    const uint32_t rounded = significand + (1u << (shift - 1)) - 1 + ((significand >> shift) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> shift));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

}  // namespace fa

#endif  // FA_HALF_H_
