// Operations on words of two bf16, for the level with VDPBF16PS. They add to the operations of vec_words_avx512.h,
// because CPUs with VDPBF16PS have VPDPWSSD, too.

#pragma once

#include "core/kernels/vec/vec_words_avx512.h"

inline constexpr int64_t kWordBytes = 4;

/// Returns acc + lower(a) * lower(b) + upper(a) * upper(b). Subnormal operands count as 0.
FA_INLINE F DotPairs(F a, F b, F acc) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(AsI(a)), reinterpret_cast<__m512bh>(AsI(b)));
}
/// Loads 16 words from `elements` elements. If there are fewer than 32 elements, the rest of the words is 0.
FA_INLINE F LoadWords(const uint16_t* p, int64_t elements) {
  const __mmask32 lanes = elements >= 32 ? 0xffffffffu : (1u << elements) - 1u;
  return AsF(_mm512_maskz_loadu_epi16(lanes, p));
}
/// Loads the lower element of a word into all lanes. The upper element is 0.
FA_INLINE F BroadcastHalf(const char* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, sizeof half);
  return AsF(SetI(half));
}
FA_INLINE F LowerHalves(F words) { return AsF(_mm512_slli_epi32(AsI(words), 16)); }
FA_INLINE F UpperHalves(F words) { return AsF(AndI(AsI(words), SetI(static_cast<int32_t>(0xffff0000u)))); }
/// Indices of a permutation that interleaves the 16 lower elements of a vector with the 16 upper elements.
alignas(64) inline constexpr uint16_t kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
/// Returns words of `even` (the lower elements) and `odd`, rounded to nearest even. A NaN stays a NaN. The function
/// takes two operations. Rounding each vector by itself would take six.
FA_INLINE F RoundToPairs(F even, F odd) {
  const I halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  return AsF(_mm512_permutexvar_epi16(_mm512_load_si512(kInTurn), halves));
}
FA_INLINE void StoreRounded(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
/// Makes words of lower[i] and upper[i] for i < n: `first` gets the first 16 words, and `second` the 16 after them. If
/// upper is null, upper elements are 0.
FA_INLINE void InterleaveRows(const uint16_t* lower, const uint16_t* upper, int64_t n, F& first, F& second) {
  alignas(64) static constexpr uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const I of_first = _mm512_load_si512(kFirst), of_second = _mm512_add_epi16(of_first, _mm512_set1_epi16(16));
  const I low = AsI(n >= 32 ? Load(reinterpret_cast<const float*>(lower)) : LoadWords(lower, n));
  I high = _mm512_setzero_si512();
  if (upper != nullptr) high = AsI(n >= 32 ? Load(reinterpret_cast<const float*>(upper)) : LoadWords(upper, n));
  first = AsF(_mm512_permutex2var_epi16(low, of_first, high));
  second = AsF(_mm512_permutex2var_epi16(low, of_second, high));
}
/// Returns words of lower[i] and upper[i] for i < n. If upper is null, upper elements are 0.
FA_INLINE F Interleave(const uint16_t* lower, const uint16_t* upper, int64_t n) {
  const __mmask16 lanes = FirstLanes(n);
  const I low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, lower));
  if (upper == nullptr) return AsF(low);
  const I high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, upper));
  return AsF(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/// Returns words of 32 elements, rounded to nearest even: the 16 elements of x, then the 16 elements of y.
FA_INLINE F BF16Words(F x, F y) { return AsF(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x))); }
FA_INLINE void StoreBF16Words(uint16_t* p, F x, F y) { _mm512_storeu_si512(p, AsI(BF16Words(x, y))); }
/// Makes words of lower[i] and upper[i] for i < 32. `first` gets the first four of every eight words, and `second` gets
/// the other four. This takes one operation per vector, on a unit that does not multiply. If upper is null, upper
/// elements are 0.
FA_INLINE void UnpackRows(const uint16_t* lower, const uint16_t* upper, F& first, F& second) {
  const I low = _mm512_loadu_si512(lower);
  const I high = upper == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(upper);
  first = AsF(_mm512_unpacklo_epi16(low, high));
  second = AsF(_mm512_unpackhi_epi16(low, high));
}
/// Reorders 32 floats from the order of columns into the order of UnpackRows.
FA_INLINE void ToUnpackedOrder(F& a, F& b) {
  const F first = _mm512_shuffle_f32x4(a, b, 0x88);
  b = _mm512_shuffle_f32x4(a, b, 0xdd);
  a = first;
}
