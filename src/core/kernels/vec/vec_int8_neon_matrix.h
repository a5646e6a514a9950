// Products of 2x2 blocks of the words of vec_int8_neon_dotprod.h. SMMLA multiplies two rows of eight signed bytes with
// two lanes of eight signed bytes, exactly.

#pragma once

#include "core/kernels/vec/vec_int8_neon_dotprod.h"

/// Returns c[row][lane] + the inner products of two rows with two lanes, eight bytes each. c has first the two sums of
/// row 0, with lanes 0 and 1, and then the two sums of row 1.
FA_INLINE I DotBlocks(I c, I rows, I lanes) {
  return vmmlaq_s32(c, vreinterpretq_s8_s32(rows), vreinterpretq_s8_s32(lanes));
}
/// ZipLow returns a0 b0 a1 b1, and ZipHigh returns a2 b2 a3 b3.
FA_INLINE I ZipLow(I a, I b) { return vzip1q_s32(a, b); }
FA_INLINE I ZipHigh(I a, I b) { return vzip2q_s32(a, b); }
/// LowHalves returns a0 a1 b0 b1, and HighHalves returns a2 a3 b2 b3.
FA_INLINE I LowHalves(I a, I b) { return vcombine_s32(vget_low_s32(a), vget_low_s32(b)); }
FA_INLINE I HighHalves(I a, I b) { return vcombine_s32(vget_high_s32(a), vget_high_s32(b)); }
/// Keeps the compiler from moving loads ahead of this call. Otherwise g++ 12 would load all lanes of a step first, and
/// spill sums to make room.
FA_INLINE void KeepLoadsBehind() { asm volatile("" ::: "memory"); }
/// Loads two words, and puts a word of zeros after each of them.
FA_INLINE I LoadTwoWords(const uint32_t* p) {
  const int32x2_t words = vreinterpret_s32_u32(vld1_u32(p));
  return ZipLow(vcombine_s32(words, words), SetI(0));
}
