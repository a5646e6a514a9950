// The operations that turn compressed elements into 16-bit words and multiply them, for the level with VDPBF16PS, whose
// CPUs have VPDPWSSD, too. A vector has the words of 32 columns in their order.

#pragma once

#include "core/kernels/vec/vec_avx512_bf16.h"

/// Returns acc + lower(a) * lower(b) + upper(a) * upper(b), where words have two integers and acc has 32-bit integers.
FA_INLINE F DotIntegers(F a, F b, F acc) { return AsF(_mm512_dpwssd_epi32(AsI(acc), AsI(a), AsI(b))); }
/// Lane i of the result is the sum of the integers in the lanes of r[i], as SumLanes adds floats.
FA_INLINE F SumIntegers(F (&r)[16]) {
  I a[8], b[4];
  FA_UNROLL for (int i = 0; i < 8; ++i) {
    const I x = AsI(r[2 * i]), y = AsI(r[2 * i + 1]);
    a[i] = AddI(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
  }
  FA_UNROLL for (int i = 0; i < 4; ++i) {
    b[i] = AddI(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  }
  const I lo = AddI(_mm512_shuffle_i32x4(b[0], b[1], 0x88), _mm512_shuffle_i32x4(b[0], b[1], 0xdd));
  const I hi = AddI(_mm512_shuffle_i32x4(b[2], b[3], 0x88), _mm512_shuffle_i32x4(b[2], b[3], 0xdd));
  return AsF(AddI(_mm512_shuffle_i32x4(lo, hi, 0x88), _mm512_shuffle_i32x4(lo, hi, 0xdd)));
}
/// Rounds to integers and packs them in pairs: word i has even[i] in its lower 16 bits and odd[i] in its upper 16 bits.
FA_INLINE F IntegerPairs(F even, F odd) {
  const I upper = _mm512_slli_epi32(_mm512_cvtps_epi32(odd), 16);
  return AsF(_mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_cvtps_epi32(even), upper));
}
/// Stores 32 integers, rounded: the 16 of x and then the 16 of y.
FA_INLINE void StoreIntegerWords(uint16_t* p, F x, F y) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(y)));
}
/// Does what UnpackRows does, for words that are already in vectors.
FA_INLINE void UnpackWords(F lower, F upper, F& first, F& second) {
  first = AsF(_mm512_unpacklo_epi16(AsI(lower), AsI(upper)));
  second = AsF(_mm512_unpackhi_epi16(AsI(lower), AsI(upper)));
}

/// The bf16 of the codes 0..127 of an 8-bit float with `kFraction` bits of fraction. The upper 128 codes have the other
/// sign.
template <int kFraction>
struct ByteFloats {
  alignas(64) uint16_t of[128];
  constexpr ByteFloats() : of() {
    constexpr int kExponents = 1 << (7 - kFraction), kFractions = 1 << kFraction, kBias = kExponents / 2 - 1;
    for (int code = 0; code < 128; ++code) {
      int exponent = code / kFractions, fraction = code % kFractions;
      if (exponent == 0 && fraction == 0) continue;
      if (exponent == 0) {  // a subnormal number becomes a normal one
        for (exponent = 1; fraction < kFractions; fraction *= 2) --exponent;
        fraction -= kFractions;
      }
      of[code] = static_cast<uint16_t>((exponent - kBias + 127) << 7 | fraction << (7 - kFraction));
    }
    if (kFraction == 3) of[127] = 0x7fc0;  // e4m3 has one NaN and no infinity
    if (kFraction == 2) {
      of[124] = 0x7f80;
      for (int code = 125; code < 128; ++code) of[code] = 0x7fc0;
    }
  }
};
template <int kFraction>
inline constexpr ByteFloats<kFraction> kByteFloats;

/// Loads 32 8-bit floats as bf16. Each table look-up serves 64 codes.
template <int kFraction>
FA_INLINE F LoadByteFloats(const void* p) {
  const uint16_t(&table)[128] = kByteFloats<kFraction>.of;
  const I codes = _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  const I lower = _mm512_permutex2var_epi16(_mm512_load_si512(table), codes, _mm512_load_si512(table + 32));
  const I upper = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), codes, _mm512_load_si512(table + 96));
  const __mmask32 is_upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(64));
  const I magnitude = _mm512_mask_blend_epi16(is_upper, lower, upper);
  constexpr int kOrOfAnd = 0xf8;  // a | (b & c)
  const I sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
  return AsF(_mm512_ternarylogic_epi32(magnitude, codes, sign, kOrOfAnd));
}

/// Loads 32 integers of 4 bits from 16 bytes. The permutation uses five bits of each word, of which one is not part of
/// the integer. So the table has each integer twice.
FA_INLINE F LoadIntegers4(const void* p) {
  alignas(64) static constexpr int16_t kNumbers[32] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1,
                                                       0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  const I bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const I halves = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  return AsF(_mm512_permutexvar_epi16(halves, _mm512_load_si512(kNumbers)));
}

/// Loads the elements of 32 columns as words: integers for int8 and int4, bf16 for 8-bit floats.
template <DType kType>
FA_INLINE F LoadWordsOf(const void* p) {
  if constexpr (kType == DType::kI8) {
    return AsF(_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p))));
  } else if constexpr (kType == DType::kI4x8) {
    return LoadIntegers4(p);
  } else {
    return LoadByteFloats < kType == DType::kF8E4M3 ? 3 : 2 > (p);
  }
}
