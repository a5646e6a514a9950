// Operations with BFMMLA, which multiplies two rows of four bf16 by two lanes of four bf16. They add to the operations
// of vec_neon_bf16.h.

#pragma once

#include "core/kernels/vec/vec_neon_bf16.h"

/// Returns c plus the inner products of two rows with two lanes, which have four elements each. c holds the sums of
/// (row, lane) in the order (0, 0), (0, 1), (1, 0), (1, 1). The products of elements 0 and 1 are added first, as
/// DotPairs adds them, and then the products of elements 2 and 3.
FA_INLINE F DotBlocks(F c, F rows, F lanes) {
  return vbfmmlaq_f32(c, vreinterpretq_bf16_f32(rows), vreinterpretq_bf16_f32(lanes));
}
/// ZipLow returns a0 b0 a1 b1, and ZipHigh returns a2 b2 a3 b3.
FA_INLINE F ZipLow(F a, F b) { return vzip1q_f32(a, b); }
FA_INLINE F ZipHigh(F a, F b) { return vzip2q_f32(a, b); }
/// EvenWords returns a0 a2 b0 b2, and OddWords returns a1 a3 b1 b3.
FA_INLINE F EvenWords(F a, F b) { return vuzp1q_f32(a, b); }
FA_INLINE F OddWords(F a, F b) { return vuzp2q_f32(a, b); }
/// LowHalves returns a0 a1 b0 b1, and HighHalves returns a2 a3 b2 b3.
FA_INLINE F LowHalves(F a, F b) { return vcombine_f32(vget_low_f32(a), vget_low_f32(b)); }
FA_INLINE F HighHalves(F a, F b) { return vcombine_f32(vget_high_f32(a), vget_high_f32(b)); }
/// Returns a1 b0 a3 b2.
FA_INLINE F SecondThenFirst(F a, F b) { return vtrn2q_f32(a, vrev64q_f32(b)); }
/// Loads four elements of each of two rows.
FA_INLINE F TwoRows(const char* a, const char* b) {
  return vreinterpretq_f32_u16(
      vcombine_u16(vld1_u16(reinterpret_cast<const uint16_t*>(a)), vld1_u16(reinterpret_cast<const uint16_t*>(b))));
}
/// Loads the first n of four elements of each of two rows. The other elements are 0.
FA_INLINE F TwoRowsN(const char* a, const char* b, int64_t n) {
  return vreinterpretq_f32_u16(
      vcombine_u16(Load16N(reinterpret_cast<const uint16_t*>(a), n), Load16N(reinterpret_cast<const uint16_t*>(b), n)));
}
/// Returns the first n of four elements of each of two rows, for 0 < n < 4. The other elements are 0.
FA_INLINE F FirstElements(F rows, int64_t n) {
  return vreinterpretq_f32_u64(vandq_u64(vreinterpretq_u64_f32(rows), vdupq_n_u64((uint64_t{1} << (16 * n)) - 1)));
}
/// Keeps the compiler from moving loads ahead of this call. Otherwise g++ 12 would load all lanes of a step first, and
/// spill sums to make room.
FA_INLINE void KeepLoadsBehind() { asm volatile("" ::: "memory"); }
