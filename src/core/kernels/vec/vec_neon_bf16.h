// Operations on words of two bf16, for the level with products of bf16. They add to the operations of vec_neon.h.

#pragma once

#include "core/kernels/vec/vec_neon.h"

inline constexpr int64_t kWordBytes = 4;

FA_INLINE I AsI(F x) { return vreinterpretq_s32_f32(x); }
FA_INLINE F AsF(I x) { return vreinterpretq_f32_s32(x); }
FA_INLINE I AndI(I a, I b) { return vandq_s32(a, b); }
FA_INLINE I XorI(I a, I b) { return veorq_s32(a, b); }

/// Returns acc + lower(a) * lower(b) + upper(a) * upper(b). Subnormal operands count as 0.
FA_INLINE F DotPairs(F a, F b, F acc) { return vbfdotq_f32(acc, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b)); }
/// Loads one word into all lanes.
FA_INLINE F BroadcastWord(const char* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return AsF(SetI(word));
}
/// Loads the lower element of a word into all lanes. The upper element is 0.
FA_INLINE F BroadcastHalf(const char* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, sizeof half);
  return AsF(SetI(half));
}
/// Loads 4 words from `elements` elements. If there are fewer than 8 elements, the rest of the words is 0.
FA_INLINE F LoadWords(const uint16_t* p, int64_t elements) {
  if (elements >= 8) return vreinterpretq_f32_u16(vld1q_u16(p));
  uint16_t staged[8] = {};
  for (int64_t i = 0; i < elements; ++i) staged[i] = p[i];
  return vreinterpretq_f32_u16(vld1q_u16(staged));
}
FA_INLINE F Widened(uint16_t x) { return AsF(SetI(static_cast<int32_t>(uint32_t{x} << 16))); }
FA_INLINE F LowerHalves(F words) { return AsF(vshlq_n_s32(AsI(words), 16)); }
FA_INLINE F UpperHalves(F words) { return AsF(AndI(AsI(words), SetI(static_cast<int32_t>(0xffff0000u)))); }
/// Rounds to nearest even by BFCVTN. A NaN stays a NaN.
FA_INLINE uint16x4_t Rounded(F x) { return vreinterpret_u16_bf16(vcvt_bf16_f32(x)); }
/// Returns words of `even` (the lower elements) and `odd`, rounded to nearest even.
FA_INLINE F RoundToPairs(F even, F odd) {
  return vreinterpretq_f32_u16(
      vzip1q_u16(vcombine_u16(Rounded(even), vdup_n_u16(0)), vcombine_u16(Rounded(odd), vdup_n_u16(0))));
}
FA_INLINE void StoreRounded(uint16_t* p, F x) { vst1_u16(p, Rounded(x)); }
/// Returns words of lower[i] and upper[i] for i < n. If upper is null, upper elements are 0.
FA_INLINE F Interleave(const uint16_t* lower, const uint16_t* upper, int64_t n) {
  const uint16x4_t low = Load16N(lower, n), high = upper != nullptr ? Load16N(upper, n) : vdup_n_u16(0);
  return vreinterpretq_f32_u16(vzip1q_u16(vcombine_u16(low, low), vcombine_u16(high, high)));
}
