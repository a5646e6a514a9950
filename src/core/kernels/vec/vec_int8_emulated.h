// The functions of vec_int8_avx512_vnni.h for any CPU, in builds with tests.

#pragma once

#include "core/kernels/vec/vec_portable.h"

inline constexpr int kGroup = 4;
inline constexpr int kKeyBlock = 8;
inline constexpr bool kNegatedProbabilities = false;

FA_INLINE I LoadWords(const uint32_t* p) {
  I x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FA_INLINE void StoreWords(uint32_t* p, I x) { __builtin_memcpy(p, &x, sizeof x); }
FA_INLINE void StoreI(int32_t* p, I x) { __builtin_memcpy(p, &x, sizeof x); }
FA_INLINE void KeepWordsInRegister(I& /*x*/) {}

/// Returns, in each lane, c + the inner product of the four bytes of a, unsigned, and the four bytes of b, signed.
FA_INLINE I DotWords(I c, I a, I b) {
  for (int shift = 0; shift < 32; shift += 8) c += ((a >> shift) & 0xff) * ((b << (24 - shift)) >> 24);
  return c;
}
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return __builtin_convertvector(RoundToInteger(x), I); }
/// Rounds and stores four rows of numbers in 0..128. The word of a lane has one byte of every row.
FA_INLINE void StoreGroups(uint32_t* p, int64_t /*stride*/, const F (&rows)[4]) {
  StoreWords(p, ToInt(rows[0]) | ToInt(rows[1]) << 8 | ToInt(rows[2]) << 16 | ToInt(rows[3]) << 24);
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) {
  for (int i = 0; i < kLanes && i < n; ++i) p[i] = static_cast<int8_t>(ToInt(x)[i]);
}
