// Words of two 16-bit integers, in addition to the NEON vocabulary, for CPUs without a product of bytes.

#pragma once

#include "core/kernels/vec/vec_neon.h"

inline constexpr int kGroup = 2;
/// The number of keys whose words alternate in a packed panel of K. With 1, each row of K stays in one piece.
inline constexpr int kKeyBlock = 1;
inline constexpr bool kNegatedProbabilities = false;

FA_INLINE I LoadWords(const uint32_t* p) { return vreinterpretq_s32_u32(vld1q_u32(p)); }
FA_INLINE void StoreWords(uint32_t* p, I x) { vst1q_u32(p, vreinterpretq_u32_s32(x)); }
FA_INLINE void StoreI(int32_t* p, I x) { vst1q_s32(p, x); }
FA_INLINE void KeepWordsInRegister(I& x) { asm("" : "+w"(x)); }

/// Returns, in each lane, c + the inner product of the two 16-bit halves of a and of b.
FA_INLINE I DotWords(I c, I a, I b) {
  const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
  return vaddq_s32(c, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
}
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return vcvtnq_s32_f32(x); }
/// Rounds and stores four rows of numbers in 0..128. The first word of a lane pairs rows 0 and 1 as 16-bit halves. The
/// second word, `stride` words after the first, pairs rows 2 and 3.
FA_INLINE void StoreGroups(uint32_t* p, int64_t stride, const F (&rows)[4]) {
  StoreWords(p, vsliq_n_s32(ToInt(rows[0]), ToInt(rows[1]), 16));
  StoreWords(p + stride, vsliq_n_s32(ToInt(rows[2]), ToInt(rows[3]), 16));
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) {
  const int16x4_t halves = vmovn_s32(ToInt(x));
  int8_t bytes[8];
  vst1_s8(bytes, vmovn_s16(vcombine_s16(halves, halves)));
  for (int64_t i = 0; i < n && i < kLanes; ++i) p[i] = bytes[i];
}
