// Words of four bytes, in addition to the NEON vocabulary. SDOT multiplies signed bytes, exactly.

#pragma once

#include "core/kernels/vec/vec_neon.h"

inline constexpr int kGroup = 4;
/// The number of keys whose words alternate in a packed panel of K. With 1, each row of K stays in one piece.
inline constexpr int kKeyBlock = 1;
/// P8 is in 0..128. 128 does not fit into a signed byte, but -128 does. So -P8 is stored, and the product is negated.
inline constexpr bool kNegatedProbabilities = true;

FA_INLINE I LoadWords(const uint32_t* p) { return vreinterpretq_s32_u32(vld1q_u32(p)); }
/// Loads the first n words, where n is 1 to 3; the other lanes are 0. Nothing past the n words is read.
FA_INLINE I LoadWordsN(const uint32_t* p, int64_t n) {
  if (n == 1) return vreinterpretq_s32_u32(vld1q_lane_u32(p, vdupq_n_u32(0), 0));
  const uint32x4_t pair = vcombine_u32(vld1_u32(p), vdup_n_u32(0));
  return vreinterpretq_s32_u32(n == 3 ? vld1q_lane_u32(p + 2, pair, 2) : pair);
}
FA_INLINE void StoreWords(uint32_t* p, I x) { vst1q_u32(p, vreinterpretq_u32_s32(x)); }
FA_INLINE void StoreI(int32_t* p, I x) { vst1q_s32(p, x); }
FA_INLINE void KeepWordsInRegister(I& x) { asm("" : "+w"(x)); }

/// Returns, in each lane, c + the inner product of the four signed bytes of a and of b.
FA_INLINE I DotWords(I c, I a, I b) { return vdotq_s32(c, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)); }
/// Does what DotWords does, but multiplies the words of all lanes of a by the word in lane `Lane` of b.
template <int Lane>
FA_INLINE I DotWordsByLane(I c, I a, I b) {
  return vdotq_laneq_s32(c, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b), Lane);
}
/// Rounds to nearest even, for |x| < 2^22.
FA_INLINE I ToInt(F x) { return vcvtnq_s32_f32(x); }
/// Rounds, negates and stores four rows of numbers in 0..128. The word of a lane has one byte of every row.
FA_INLINE void StoreGroups(uint32_t* p, int64_t /*stride*/, const F (&rows)[4]) {
  const I low = vsliq_n_s32(vnegq_s32(ToInt(rows[0])), vnegq_s32(ToInt(rows[1])), 16);
  const I high = vsliq_n_s32(vnegq_s32(ToInt(rows[2])), vnegq_s32(ToInt(rows[3])), 16);
  // Bytes 0 and 2 of each word are rows 0 and 1 in `low`, and rows 2 and 3 in `high`.
  const int8x16_t bytes = vuzp1q_s8(vreinterpretq_s8_s32(low), vreinterpretq_s8_s32(high));
  const int16x8_t pairs = vreinterpretq_s16_s8(bytes);  // rows 0, 1 of lanes 0 to 3, then rows 2, 3
  const int16x8_t other = vextq_s16(pairs, pairs, 4);
  StoreWords(p, vreinterpretq_s32_s16(vzip1q_s16(pairs, other)));
}
/// Rounds x, which is in -128..127, and stores its first n lanes as bytes.
FA_INLINE void StoreI8(int8_t* p, F x, int64_t n) {
  const int16x4_t halves = vmovn_s32(ToInt(x));
  int8_t bytes[8];
  vst1_s8(bytes, vmovn_s16(vcombine_s16(halves, halves)));
  for (int64_t i = 0; i < n && i < kLanes; ++i) p[i] = bytes[i];
}
