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
/// Quarter j of sum[i] has the sums of quarter j of r[4 i] to r[4 i + 3], where a quarter is four lanes of integers.
FA_INLINE void SumQuarters(F (&r)[16], F (&sum)[4]) {
  I a[8];
  FA_UNROLL for (int i = 0; i < 8; ++i) {
    const I x = AsI(r[2 * i]), y = AsI(r[2 * i + 1]);
    a[i] = AddI(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
  }
  FA_UNROLL for (int i = 0; i < 4; ++i) {
    const I x = a[2 * i], y = a[2 * i + 1];
    sum[i] = AsF(AddI(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y)));
  }
}
/// Lane 4 i + j of the result adds the lanes j of the quarters of r[i], by `add`.
template <typename Sum>
FA_INLINE F JoinQuarters(F (&r)[4], const Sum& add) {
  const F lo = add(_mm512_shuffle_f32x4(r[0], r[1], 0x88), _mm512_shuffle_f32x4(r[0], r[1], 0xdd));
  const F hi = add(_mm512_shuffle_f32x4(r[2], r[3], 0x88), _mm512_shuffle_f32x4(r[2], r[3], 0xdd));
  return add(_mm512_shuffle_f32x4(lo, hi, 0x88), _mm512_shuffle_f32x4(lo, hi, 0xdd));
}
/// Lane i of the result is the sum of the integers in the lanes of r[i], as SumLanes adds floats.
FA_INLINE F SumIntegers(F (&r)[16]) {
  F quarters[4];
  SumQuarters(r, quarters);
  return JoinQuarters(quarters, [](F a, F b) { return AsF(AddI(AsI(a), AsI(b))); });
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
/// Quarter i of the result has n floats, for n <= 4, and then zeros: those from p on, and from each of three distances
/// from p on.
FA_INLINE F LoadQuarters(const float* p, int64_t one, int64_t two, int64_t three, int64_t n) {
  const auto lanes = static_cast<__mmask8>(n >= 4 ? 0xf : (1u << n) - 1u);
  F x = _mm512_castps128_ps512(_mm_maskz_loadu_ps(lanes, p));
  x = _mm512_insertf32x4(x, _mm_maskz_loadu_ps(lanes, p + one), 1);
  x = _mm512_insertf32x4(x, _mm_maskz_loadu_ps(lanes, p + two), 2);
  return _mm512_insertf32x4(x, _mm_maskz_loadu_ps(lanes, p + three), 3);
}
/// Repeats lane i of the first four lanes in quarter i.
FA_INLINE F SpreadQuarters(F x) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), x);
}
/// Loads the first four lanes.
FA_INLINE F LoadQuarter(const float* p) { return _mm512_castps128_ps512(_mm_loadu_ps(p)); }
/// Repeats lane i of each quarter along the quarter.
FA_INLINE F RepeatLane(F x, int i) {
  switch (i) {
    case 0: return _mm512_permute_ps(x, 0x00);
    case 1: return _mm512_permute_ps(x, 0x55);
    case 2: return _mm512_permute_ps(x, 0xaa);
    default: return _mm512_permute_ps(x, 0xff);
  }
}
/// Repeats the lanes 0 and 1 of each quarter once.
FA_INLINE F PairLanes(F x) { return _mm512_permute_ps(x, 0x50); }
/// Quarter i of the result is p[i * R + row] in all lanes.
template <int R>
FA_INLINE F SpreadRow(const float* p, int row) {
  if constexpr (R <= 2) {
    const I of = _mm512_setr_epi32(0, 0, 0, 0, R, R, R, R, 2 * R, 2 * R, 2 * R, 2 * R, 3 * R, 3 * R, 3 * R, 3 * R);
    return _mm512_permutexvar_ps(AddI(of, SetI(row)), LoadN(p, 4 * R));
  }
  F keys = Load(p);
  if constexpr (R == 8) {
    const F second = Load(p + 16);
    keys = row < 4 ? _mm512_shuffle_f32x4(keys, second, 0x88) : _mm512_shuffle_f32x4(keys, second, 0xdd);
  }
  return RepeatLane(keys, row % 4);
}
/// Exchanges lane j of quarter i with lane i of quarter j.
FA_INLINE F TransposeLanes(F x) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}
/// Exchanges lane j of a quarter of r[i] with lane i of this quarter of r[j].
FA_INLINE void TransposeInQuarters(F (&r)[4]) {
  const F a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
  const F c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
  r[0] = _mm512_shuffle_ps(a, c, 0x44);
  r[1] = _mm512_shuffle_ps(a, c, 0xee);
  r[2] = _mm512_shuffle_ps(b, d, 0x44);
  r[3] = _mm512_shuffle_ps(b, d, 0xee);
}
/// Returns the larger of a magnitude and the magnitude of x. Every NaN is larger than infinity.
FA_INLINE F MaxMagnitude(F magnitude, F x) { return AsF(_mm512_max_epu32(AsI(magnitude), AsI(Abs(x)))); }
/// Splits 64 bytes into 128 integers of 4 bits: x[j] has every fourth of them from j on.
FA_INLINE void SplitBlock4(I words, F (&x)[4]) {
  x[0] = LowerIntegers4(words);
  x[1] = LowerIntegers4(_mm512_srli_epi16(words, 4));
  x[2] = LowerIntegers4(_mm512_srli_epi16(words, 8));
  x[3] = LowerIntegers4(_mm512_srli_epi16(words, 12));
}
FA_INLINE void LoadBlock4(const char* p, F (&x)[4]) { SplitBlock4(_mm512_loadu_si512(p), x); }
/// Loads words of two rows: those of the lower or of the upper half of each quarter. If upper is null, its elements are
/// 0.
template <bool UpperHalf>
FA_INLINE void LoadBlockPairs4(const char* lower, const char* upper, F (&x)[4]) {
  const I a = _mm512_loadu_si512(lower), b = upper == nullptr ? SetI(0) : _mm512_loadu_si512(upper);
  SplitBlock4(UpperHalf ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b), x);
}
/// Puts 128 words in the order of SplitBlock4, with vectors `apart` words apart.
FA_INLINE void ToBlockOrder4(const uint16_t* words, uint16_t* to, int64_t apart) {
  alignas(64) static constexpr int16_t kFourth[32] = {0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                                      2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
  F x[4];
  FA_UNROLL for (int i = 0; i < 4; ++i) {
    x[i] = AsF(_mm512_permutexvar_epi16(_mm512_load_si512(kFourth), _mm512_loadu_si512(words + 32 * i)));
  }
  TransposeQuarters(x);
  FA_UNROLL for (int i = 0; i < 4; ++i) _mm512_storeu_si512(to + i * apart, AsI(x[i]));
}
/// Repeats numbers of four keys, which each quarter has, for R rows of each key: in the lanes of the sums 4 m to 4 m +
/// 3 of all sums [key][row].
template <int R>
FA_INLINE F RepeatForRows(F numbers, int m) {
  if constexpr (R == 1) return numbers;
  if constexpr (R == 2) return m % 2 == 0 ? _mm512_permute_ps(numbers, 0x50) : _mm512_permute_ps(numbers, 0xfa);
  return RepeatLane(numbers, R == 4 ? m : m / 2);
}
