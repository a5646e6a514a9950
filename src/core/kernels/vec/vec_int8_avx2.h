// Words of two 16-bit integers, in addition to the AVX2 vocabulary. Their product VPMADDWD is exact, but VPMADDUBSW,
// the product of bytes, saturates.

#pragma once

#include "core/kernels/vec/vec_avx2.h"

inline constexpr int kGroup = 2;
/// The number of keys whose words alternate in a packed panel of K. With 1, each row of K stays in one piece.
inline constexpr int kKeyBlock = 1;
inline constexpr bool kNegatedProbabilities = false;

FA_INLINE I LoadWords(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
FA_INLINE void StoreWords(uint32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
FA_INLINE void StoreI(int32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
FA_INLINE void KeepWordsInRegister(I& x) { asm("" : "+x"(x)); }

/// Returns, in each lane, c + the inner product of the two 16-bit halves of a and of b.
FA_INLINE I DotWords(I c, I a, I b) { return _mm256_add_epi32(c, _mm256_madd_epi16(a, b)); }
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return _mm256_cvtps_epi32(x); }
/// Rounds and stores four rows of numbers in 0..128. The first word of a lane pairs rows 0 and 1 as 16-bit halves. The
/// second word, `stride` words after the first, pairs rows 2 and 3.
FA_INLINE void StoreGroups(uint32_t* p, int64_t stride, const F (&rows)[4]) {
  StoreWords(p, _mm256_or_si256(ToInt(rows[0]), _mm256_slli_epi32(ToInt(rows[1]), 16)));
  StoreWords(p + stride, _mm256_or_si256(ToInt(rows[2]), _mm256_slli_epi32(ToInt(rows[3]), 16)));
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) {
  const __m256i words = ToInt(x);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  const __m128i bytes = _mm_packs_epi16(halves, halves);
  if (n >= kLanes) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
    return;
  }
  int8_t staged[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(staged), bytes);
  for (int64_t i = 0; i < n; ++i) p[i] = staged[i];
}
