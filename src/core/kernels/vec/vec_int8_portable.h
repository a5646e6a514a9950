// Words of two 16-bit integers, in addition to the portable vocabulary.

#pragma once

#include "core/kernels/vec/vec_portable.h"

inline constexpr int kGroup = 2;
/// The number of keys whose words alternate in a packed panel of K. With 1, each row of K stays in one piece.
inline constexpr int kKeyBlock = 1;
inline constexpr bool kNegatedProbabilities = false;

FA_INLINE I LoadWords(const uint32_t* p) {
  I x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FA_INLINE void StoreWords(uint32_t* p, I x) { __builtin_memcpy(p, &x, sizeof x); }
FA_INLINE void StoreI(int32_t* p, I x) { __builtin_memcpy(p, &x, sizeof x); }
FA_INLINE void KeepWordsInRegister(I& /*x*/) {}

/// Returns, in each lane, c + the inner product of the two 16-bit halves of a and of b. The sums fit into 32 bits
/// (kInt8ProductKeys).
FA_INLINE I DotWords(I c, I a, I b) {
  const I low = ((a << 16) >> 16) * ((b << 16) >> 16), high = (a >> 16) * (b >> 16);
  return c + low + high;
}
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return __builtin_convertvector(RoundToInteger(x), I); }
/// Rounds and stores four rows of numbers in 0..128. The first word of a lane pairs rows 0 and 1 as 16-bit halves. The
/// second word, `stride` words after the first, pairs rows 2 and 3.
FA_INLINE void StoreGroups(uint32_t* p, int64_t stride, const F (&rows)[4]) {
  StoreWords(p, ToInt(rows[0]) | (ToInt(rows[1]) << 16));
  StoreWords(p + stride, ToInt(rows[2]) | (ToInt(rows[3]) << 16));
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = static_cast<int8_t>(ToInt(x)[i]);
}
