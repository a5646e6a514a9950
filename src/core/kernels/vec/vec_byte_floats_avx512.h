// Loads 8-bit floats as bf16, for the level with VDPBF16PS. A vector holds 32 columns as 16 words.

#pragma once

#include "core/kernels/vec/vec_avx512_bf16.h"

/// A table of the bf16 for the codes 0..127 of an 8-bit float with `fraction_bits` bits of fraction. The codes 128..255
/// are the same numbers with the other sign.
struct ByteFloats {
  alignas(64) uint16_t of[128];
  alignas(64) uint8_t lower[128], upper[128];  ///< the bytes of `of`
  constexpr explicit ByteFloats(int fraction_bits) : of(), lower(), upper() {
    const int exponents = 1 << (7 - fraction_bits), fractions = 1 << fraction_bits, bias = exponents / 2 - 1;
    for (int code = 1; code < 128; ++code) {
      int exponent = code / fractions, fraction = code % fractions;
      if (exponent == 0) {  // a subnormal number becomes a normal one
        for (exponent = 1; fraction < fractions; fraction *= 2) --exponent;
        fraction -= fractions;
      }
      of[code] = static_cast<uint16_t>((exponent - bias + 127) << 7 | fraction << (7 - fraction_bits));
    }
    if (fraction_bits == 3) of[127] = 0x7fc0;  // e4m3 has one NaN and no infinity
    if (fraction_bits == 2) {
      of[124] = 0x7f80;
      for (int code = 125; code < 128; ++code) of[code] = 0x7fc0;
    }
    for (int code = 0; code < 128; ++code) {
      lower[code] = static_cast<uint8_t>(of[code]);
      upper[code] = static_cast<uint8_t>(of[code] >> 8);
    }
  }
};
inline constexpr ByteFloats kE4M3Floats(3), kE5M2Floats(2);

#ifdef __AVX512VBMI__

/// Turns 64 codes into bf16. Of every 16 codes, the first eight go to `lower`, and the other eight to `upper`.
FA_INLINE void WidenByteFloats(const ByteFloats& table, I codes, F& lower, F& upper) {
  const auto look_up = [&](const uint8_t* of) __attribute__((always_inline)) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(of), codes, _mm512_load_si512(of + 64));
  };
  constexpr int kOrOfAnd = 0xf8;  // a | (b & c)
  const I first = look_up(table.lower);
  const I second = _mm512_ternarylogic_epi32(look_up(table.upper), codes, _mm512_set1_epi8(-128), kOrOfAnd);
  lower = AsF(_mm512_unpacklo_epi8(first, second));
  upper = AsF(_mm512_unpackhi_epi8(first, second));
}

#else

/// Turns the codes in the upper bytes of 16-bit words into bf16. Each table look-up serves 64 codes.
FA_INLINE F WidenByteFloats(const uint16_t (&table)[128], I words) {
  const I codes = _mm512_srai_epi16(words, 8);
  const I lower = _mm512_permutex2var_epi16(_mm512_load_si512(table), codes, _mm512_load_si512(table + 32));
  const I upper = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), codes, _mm512_load_si512(table + 96));
  const __mmask32 is_upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(64));
  const I magnitude = _mm512_mask_blend_epi16(is_upper, lower, upper);
  constexpr int kOrOfAnd = 0xf8;  // a | (b & c)
  const I sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
  return AsF(_mm512_ternarylogic_epi32(magnitude, codes, sign, kOrOfAnd));
}
/// Turns 64 codes into bf16. Of every 16 codes, the first eight go to `lower`, and the other eight to `upper`.
FA_INLINE void WidenByteFloats(const ByteFloats& table, I codes, F& lower, F& upper) {
  lower = WidenByteFloats(table.of, _mm512_unpacklo_epi8(codes, codes));
  upper = WidenByteFloats(table.of, _mm512_unpackhi_epi8(codes, codes));
}

#endif

/// Loads 32 codes into a vector, eight codes into the lower half of every 16 bytes.
FA_INLINE I LoadCodes32(const void* p) {
  const __m512i codes = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), codes);
}

/// Loads 32 * N 8-bit floats as bf16. With N = 2, x[0] gets the first eight of every 16 columns, and x[1] the other
/// eight.
template <int N>
FA_INLINE void LoadByteFloats(const ByteFloats& table, const char* p, F (&x)[N]) {
  static_assert(N <= 2);
  F none;
  if constexpr (N == 1) WidenByteFloats(table, LoadCodes32(p), x[0], none);
  if constexpr (N == 2) WidenByteFloats(table, _mm512_loadu_si512(p), x[0], x[1]);
}
/// Loads 32 * N columns of two rows, whose elements become the lower and upper halves of words. If `upper` is null, the
/// upper halves are 0. With N = 1 the words have the order of UnpackWords. With N = 2, x[i] has four columns of every
/// 16, from column 4 i on.
template <int N>
FA_INLINE void LoadByteFloatPairs(const ByteFloats& table, const char* lower, const char* upper, F (&x)[2 * N]) {
  static_assert(N <= 2);
  const I zero = _mm512_setzero_si512();
  if constexpr (N == 1) {
    const I a = LoadCodes32(lower), b = upper == nullptr ? zero : LoadCodes32(upper);
    WidenByteFloats(table, _mm512_unpacklo_epi8(a, b), x[0], x[1]);
  } else {
    const I a = _mm512_loadu_si512(lower), b = upper == nullptr ? zero : _mm512_loadu_si512(upper);
    WidenByteFloats(table, _mm512_unpacklo_epi8(a, b), x[0], x[1]);
    WidenByteFloats(table, _mm512_unpackhi_epi8(a, b), x[2], x[3]);
  }
}
