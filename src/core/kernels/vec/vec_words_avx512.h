// Operations on words of two 16-bit integers, for the level with VPDPWSSD. They add to the operations of vec_avx512.h.
// A vector holds 32 columns as 16 words.

#pragma once

#include "core/kernels/vec/vec_avx512.h"

FA_INLINE I AsI(F x) { return _mm512_castps_si512(x); }
FA_INLINE F AsF(I x) { return _mm512_castsi512_ps(x); }
FA_INLINE I AndI(I a, I b) { return _mm512_and_si512(a, b); }
FA_INLINE I XorI(I a, I b) { return _mm512_xor_si512(a, b); }

/// Loads one word into all lanes.
FA_INLINE F BroadcastWord(const char* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return AsF(SetI(word));
}
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
/// Rounds 32 numbers to integers and stores them: the 16 numbers of x, then the 16 numbers of y.
FA_INLINE void StoreIntegerWords(uint16_t* p, F x, F y) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(y)));
}
/// Does what UnpackRows does, for two rows that are in vectors already.
FA_INLINE void UnpackWords(F lower, F upper, F& first, F& second) {
  first = AsF(_mm512_unpacklo_epi16(AsI(lower), AsI(upper)));
  second = AsF(_mm512_unpackhi_epi16(AsI(lower), AsI(upper)));
}
/// Undoes ToUnpackedOrder.
FA_INLINE void FromUnpackedOrder(F& a, F& b) {
  const F low = _mm512_shuffle_f32x4(a, b, 0x44), high = _mm512_shuffle_f32x4(a, b, 0xee);
  a = _mm512_shuffle_f32x4(low, low, 0xd8);
  b = _mm512_shuffle_f32x4(high, high, 0xd8);
}

/// Exchanges group j of r[i] with group i of r[j], where a group is four lanes.
FA_INLINE void TransposeQuarters(F (&r)[4]) {
  const F a = _mm512_shuffle_f32x4(r[0], r[1], 0x44), b = _mm512_shuffle_f32x4(r[2], r[3], 0x44);
  const F c = _mm512_shuffle_f32x4(r[0], r[1], 0xee), d = _mm512_shuffle_f32x4(r[2], r[3], 0xee);
  r[0] = _mm512_shuffle_f32x4(a, b, 0x88);
  r[1] = _mm512_shuffle_f32x4(a, b, 0xdd);
  r[2] = _mm512_shuffle_f32x4(c, d, 0x88);
  r[3] = _mm512_shuffle_f32x4(c, d, 0xdd);
}
/// Moves the even keys to a and the odd keys to b. The vectors hold consecutive keys, first a and then b, with R lanes
/// per key.
template <int R>
FA_INLINE void SplitKeys(F& a, F& b) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  F even;
  if constexpr (R <= 2) {
    // Lane i belongs to row i % R of key i / R. Each of a and b has 16 / R keys.
    const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const I row = _mm512_and_si512(lane, _mm512_set1_epi32(R - 1));
    const I of_even = _mm512_sub_epi32(_mm512_add_epi32(lane, lane), row);
    even = _mm512_permutex2var_ps(a, of_even, b);
    b = _mm512_permutex2var_ps(a, _mm512_add_epi32(of_even, _mm512_set1_epi32(R)), b);
  } else {
    even = _mm512_shuffle_f32x4(a, b, R == 4 ? 0x88 : 0x44);
    b = _mm512_shuffle_f32x4(a, b, R == 4 ? 0xdd : 0xee);
  }
  a = even;
}
/// Returns the integer of the lower 4 bits of each word. The permutation uses five bits of each word, of which one is
/// not part of the integer. So the table has each integer twice.
FA_INLINE F LowerIntegers4(I words) {
  alignas(64) static constexpr int16_t kNumbers[32] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1,
                                                       0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  return AsF(_mm512_permutexvar_epi16(words, _mm512_load_si512(kNumbers)));
}
/// Splits 16-bit words with two 4-bit integers each: `lower` gets the integers of bits 0..3, and `upper` those of bits
/// 4..7.
FA_INLINE void SplitIntegers4(I words, F& lower, F& upper) {
  lower = LowerIntegers4(words);
  upper = LowerIntegers4(_mm512_srli_epi16(words, 4));
}
/// Loads 32 bytes into 16-bit words.
FA_INLINE I LoadBytes(const void* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// Loads 32 integers of 4 bits from 16 bytes.
FA_INLINE F LoadIntegers4(const void* p) {
  const I bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return LowerIntegers4(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)));
}
/// Loads 32 integers of 8 bits.
FA_INLINE F LoadIntegers8(const void* p) {
  return AsF(_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p))));
}
