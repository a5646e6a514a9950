// The functions of vec_avx512_bf16.h for any CPU, element by element, in builds with tests.

#pragma once

#include "core/kernels/vec/vec_portable.h"

inline constexpr int64_t kWordBytes = 4;

FA_INLINE I AsI(F x) { return BitCast<I>(x); }
FA_INLINE F AsF(I x) { return BitCast<F>(x); }
FA_INLINE I AndI(I a, I b) { return a & b; }
FA_INLINE I XorI(I a, I b) { return a ^ b; }
FA_INLINE F LowerHalves(F words) { return AsF(AsI(words) << 16); }
FA_INLINE F UpperHalves(F words) { return AsF(AsI(words) & static_cast<int32_t>(0xffff0000u)); }
FA_INLINE float WithoutSubnormal(float x) {
  const uint32_t bits = BitCast<uint32_t>(x);
  return (bits & 0x7f800000u) != 0 ? x : BitCast<float>(bits & 0x80000000u);
}
/// Does what VDPBF16PS does. The upper product is added first, and each product is added with one rounding. Subnormal
/// operands and results are 0. The function is not inlined, because compilers would take minutes for the unrolled
/// register blocks.
[[maybe_unused, gnu::noinline]] F DotPairs(F a, F b, F acc) {
  const auto add = [&acc](F x, F y) {
    for (int i = 0; i < kLanes; ++i) {
      acc[i] =
          WithoutSubnormal(__builtin_fmaf(WithoutSubnormal(x[i]), WithoutSubnormal(y[i]), WithoutSubnormal(acc[i])));
    }
  };
  add(UpperHalves(a), UpperHalves(b));
  add(LowerHalves(a), LowerHalves(b));
  return acc;
}
FA_INLINE F BroadcastWord(const char* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return AsF(SetI(word));
}
FA_INLINE F BroadcastHalf(const char* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, sizeof half);
  return AsF(SetI(half));
}
FA_INLINE F LoadWords(const uint16_t* p, int64_t elements) {
  I words = {};
  for (int i = 0; i < 2 * kLanes && i < elements; ++i)
    words[i / 2] |= static_cast<int32_t>(uint32_t{p[i]} << i % 2 * 16);
  return AsF(words);
}
[[maybe_unused, gnu::noinline]] F RoundToPairs(F even, F odd) {
  I words = {};
  for (int i = 0; i < kLanes; ++i) {
    words[i] = static_cast<int32_t>(FloatToBF16(WithoutSubnormal(even[i])) |
                                    uint32_t{FloatToBF16(WithoutSubnormal(odd[i]))} << 16);
  }
  return AsF(words);
}
FA_INLINE void StoreRounded(uint16_t* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = FloatToBF16(WithoutSubnormal(x[i]));
}
FA_INLINE F Interleave(const uint16_t* lower, const uint16_t* upper, int64_t n) {
  I words = {};
  for (int i = 0; i < kLanes && i < n; ++i) {
    words[i] = static_cast<int32_t>(lower[i] | (upper != nullptr ? uint32_t{upper[i]} << 16 : 0u));
  }
  return AsF(words);
}
FA_INLINE void InterleaveRows(const uint16_t* lower, const uint16_t* upper, int64_t n, F& first, F& second) {
  first = Interleave(lower, upper, n);
  const bool more = n > kLanes;
  second = more ? Interleave(lower + kLanes, upper != nullptr ? upper + kLanes : nullptr, n - kLanes) : Zero();
}
FA_INLINE void TransposeQuarters(F (&r)[4]) { Transpose(r); }
