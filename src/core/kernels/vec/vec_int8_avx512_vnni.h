// Words of four bytes, in addition to the AVX-512 vocabulary. VPDPBUSD multiplies unsigned by signed bytes, exactly.

#pragma once

#include "core/kernels/vec/vec_avx512.h"

inline constexpr int kGroup = 4;
/// The number of keys whose words alternate in a packed panel of K. With eight, the words of eight keys are read as one
/// stream instead of eight. So two products per cycle need not wait for loads.
inline constexpr int kKeyBlock = 8;
inline constexpr bool kNegatedProbabilities = false;

FA_INLINE I LoadWords(const uint32_t* p) { return _mm512_loadu_si512(p); }
FA_INLINE void StoreWords(uint32_t* p, I x) { _mm512_storeu_si512(p, x); }
FA_INLINE void StoreI(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
FA_INLINE void KeepWordsInRegister(I& x) { asm("" : "+v"(x)); }

/// Returns, in each lane, c + the inner product of the four bytes of a, unsigned, and the four bytes of b, signed.
FA_INLINE I DotWords(I c, I a, I b) { return _mm512_dpbusd_epi32(c, a, b); }
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return _mm512_cvtps_epi32(x); }
/// Rounds and stores four rows of numbers in 0..128. The word of a lane has one byte of every row.
FA_INLINE void StoreGroups(uint32_t* p, int64_t /*stride*/, const F (&rows)[4]) {
  const I order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const I low = _mm512_packus_epi32(ToInt(rows[0]), ToInt(rows[1]));
  const I high = _mm512_packus_epi32(ToInt(rows[2]), ToInt(rows[3]));
  StoreWords(p, _mm512_shuffle_epi8(_mm512_packus_epi16(low, high), order));
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) { _mm512_mask_cvtepi32_storeu_epi8(p, FirstLanes(n), ToInt(x)); }
