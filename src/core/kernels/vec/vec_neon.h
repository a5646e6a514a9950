// The vocabulary of the NEON levels (ASIMD of every aarch64 CPU): 4 f32 lanes, 32 registers.

#pragma once

using F = float32x4_t;
using I = int32x4_t;
using M = uint32x4_t;  // all ones or all zeros per lane
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 32;
/// The number of steps of the depth for which the micro-kernel loads the factors of a row together, as one vector.
inline constexpr int kStepsAtOnce = kLanes;
inline constexpr int kLastSteps = 0;
constexpr int StepsPerTurn(int /*vectors*/) { return 1; }
inline constexpr bool kFetchesValues = true;

alignas(16) inline constexpr int32_t kLaneNumbers[4] = {0, 1, 2, 3};

FA_INLINE M FirstLanes(int64_t n) {
  return vcgtq_s32(vdupq_n_s32(static_cast<int32_t>(n < 4 ? n : 4)), vld1q_s32(kLaneNumbers));
}

FA_INLINE F Load(const float* p) { return vld1q_f32(p); }
/// Loads n elements. Nothing behind them may be read, so 1 to 3 elements are loaded in parts.
FA_INLINE F LoadN(const float* p, int64_t n) {
  if (n >= 4) return Load(p);
  F x = vdupq_n_f32(0);
  if (n >= 2) {
    x = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    return n == 3 ? vld1q_lane_f32(p + 2, x, 2) : x;
  }
  return n == 1 ? vld1q_lane_f32(p, x, 0) : x;
}
FA_INLINE void Store(float* p, F x) { vst1q_f32(p, x); }
FA_INLINE void StoreN(float* p, F x, int64_t n) {
  if (n >= 4) return Store(p, x);
  if (n >= 2) vst1_f32(p, vget_low_f32(x));
  if (n == 3) vst1q_lane_f32(p + 2, x, 2);
  if (n == 1) vst1q_lane_f32(p, x, 0);
}
FA_INLINE F Set(float x) { return vdupq_n_f32(x); }
FA_INLINE F Zero() { return vdupq_n_f32(0); }
FA_INLINE F Add(F a, F b) { return vaddq_f32(a, b); }
FA_INLINE F Sub(F a, F b) { return vsubq_f32(a, b); }
FA_INLINE F Mul(F a, F b) { return vmulq_f32(a, b); }
FA_INLINE F Div(F a, F b) { return vdivq_f32(a, b); }
FA_INLINE F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
FA_INLINE F Fms(F a, F b, F c) { return vfmaq_f32(vnegq_f32(c), a, b); }
/// Returns factors[Lane] * b + c.
template <int Lane>
FA_INLINE F FmaByLane(F factors, F b, F c) {
  return vfmaq_laneq_f32(c, b, factors, Lane);
}
FA_INLINE F Sqrt(F a) { return vsqrtq_f32(a); }
FA_INLINE F Abs(F a) { return vabsq_f32(a); }
/// If an operand is NaN, Max and Min return the second operand.
FA_INLINE F Max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
FA_INLINE F Min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
FA_INLINE F Select(M m, F yes, F no) { return vbslq_f32(m, yes, no); }
FA_INLINE M Equal(F a, F b) { return vceqq_f32(a, b); }
FA_INLINE M Less(F a, F b) { return vcltq_f32(a, b); }
FA_INLINE M SameBits(F a, F b) { return vceqq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)); }
FA_INLINE M Or(M a, M b) { return vorrq_u32(a, b); }
FA_INLINE bool Any(M m) { return vmaxvq_u32(m) != 0; }
/// Returns the lanes where a is infinite or NaN.
FA_INLINE M NotFinite(F a) { return vmvnq_u32(vcleq_f32(Abs(a), Set(3.402823466e38f))); }

FA_INLINE I LoadI(const int32_t* p) { return vld1q_s32(p); }
FA_INLINE I SetI(int32_t x) { return vdupq_n_s32(x); }
FA_INLINE I AddI(I a, I b) { return vaddq_s32(a, b); }
FA_INLINE I SubI(I a, I b) { return vsubq_s32(a, b); }
FA_INLINE M GreaterI(I a, I b) { return vcgtq_s32(a, b); }
/// Returns the lanes where word & bit is not 0.
FA_INLINE M TestBits(I word, I bit) { return vtstq_s32(word, bit); }
FA_INLINE F ToFloat(I a) { return vcvtq_f32_s32(a); }

/// Returns four 16-bit values, of which the first n come from memory and the others are 0.
FA_INLINE uint16x4_t Load16N(const uint16_t* p, int64_t n) {
  uint16x4_t x = vdup_n_u16(0);
  if (n >= 4) return vld1_u16(p);
  if (n >= 1) x = vld1_lane_u16(p, x, 0);
  if (n >= 2) x = vld1_lane_u16(p + 1, x, 1);
  if (n >= 3) x = vld1_lane_u16(p + 2, x, 2);
  return x;
}
FA_INLINE void Store16N(uint16_t* p, uint16x4_t x, int64_t n) {
  if (n >= 4) return vst1_u16(p, x);
  if (n >= 1) vst1_lane_u16(p, x, 0);
  if (n >= 2) vst1_lane_u16(p + 1, x, 1);
  if (n >= 3) vst1_lane_u16(p + 2, x, 2);
}
FA_INLINE F WidenBF16(uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); }
FA_INLINE F WidenF16(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
FA_INLINE F LoadF16(const uint16_t* p) { return WidenF16(vld1_u16(p)); }
FA_INLINE F LoadF16N(const uint16_t* p, int64_t n) { return WidenF16(Load16N(p, n)); }
FA_INLINE F LoadBF16(const uint16_t* p) { return WidenBF16(vld1_u16(p)); }
FA_INLINE F LoadBF16N(const uint16_t* p, int64_t n) { return WidenBF16(Load16N(p, n)); }
/// Splits 8 elements into the four even and the four odd elements.
FA_INLINE void SplitBF16(F elements, F& even, F& odd) {
  const uint32x4_t x = vreinterpretq_u32_f32(elements);
  even = vreinterpretq_f32_u32(vshlq_n_u32(x, 16));
  odd = vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000u)));
}
FA_INLINE F LoadI8N(const int8_t* p, int64_t n) {
  int8x8_t x = vdup_n_s8(0);
  if (n >= 1) x = vld1_lane_s8(p, x, 0);
  if (n >= 2) x = vld1_lane_s8(p + 1, x, 1);
  if (n >= 3) x = vld1_lane_s8(p + 2, x, 2);
  if (n >= 4) x = vld1_lane_s8(p + 3, x, 3);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(x))));
}
FA_INLINE F LoadI8(const int8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word)))));
}
FA_INLINE uint16x4_t ToF16(F x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
/// Rounds to nearest even. A NaN stays a NaN, and becomes a quiet one.
FA_INLINE uint16x4_t ToBF16(F x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
}
FA_INLINE void StoreF16(uint16_t* p, F x) { vst1_u16(p, ToF16(x)); }
FA_INLINE void StoreF16N(uint16_t* p, F x, int64_t n) { Store16N(p, ToF16(x), n); }
FA_INLINE void StoreBF16(uint16_t* p, F x) { vst1_u16(p, ToBF16(x)); }
FA_INLINE void StoreBF16N(uint16_t* p, F x, int64_t n) { Store16N(p, ToBF16(x), n); }

/// Returns bits: bit i says whether byte i is not 0, for the 16 bytes.
FA_INLINE uint32_t NonZeroBits(uint8x16_t bytes) {
  alignas(16) static constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bits = vandq_u8(vtstq_u8(bytes, bytes), vld1q_u8(kBits));
  return static_cast<uint32_t>(vaddv_u8(vget_low_u8(bits))) | static_cast<uint32_t>(vaddv_u8(vget_high_u8(bits))) << 8;
}
/// Returns bits: bit j says whether byte j is not 0, for j < n <= 32.
FA_INLINE uint32_t NonZeroBytes(const uint8_t* p, int64_t n) {
  if (n >= 32) return NonZeroBits(vld1q_u8(p)) | NonZeroBits(vld1q_u8(p + 16)) << 16;
  uint32_t bits = 0;
  for (int64_t j = 0; j < n; ++j) bits |= static_cast<uint32_t>(p[j] != 0) << j;
  return bits;
}

/// Does nothing, because FMLA takes its operands from registers only.
FA_INLINE void KeepInRegister(F& /*x*/) {}
FA_INLINE void AddProduct(F x, F y, F& sum) { sum = Fma(x, y, sum); }

/// Multiplies f by 2^(r/2) and then by 2^(r - r/2). With these two steps a subnormal result is rounded only once.
FA_INLINE F ScaleByPowerOfTwo(F f, F r) {
  const I n = vcvtnq_s32_f32(r), half = vshrq_n_s32(n, 1), bias = vdupq_n_s32(127);
  const I a = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const I b = vshlq_n_s32(vaddq_s32(vsubq_s32(n, half), bias), 23);
  return Mul(Mul(f, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}
FA_INLINE F RoundToInteger(F x) { return vrndnq_f32(x); }
/// Clamps the exponent of a power of 2. Below -152 the power is 0, and above 129 it is infinite. A NaN stays a NaN.
FA_INLINE F ClampExponent(F x) { return vminq_f32(Set(129.0f), vmaxq_f32(Set(-152.0f), x)); }
/// x + 1.5 * 2^23 has no bits below 1, so its low bits are n, the integer nearest to x. With 127, the bias of
/// exponents, added too, the low bits are the exponent field of 2^n.
inline constexpr float kExponentRounding = 12582912.0f + 127.0f;
/// Clamps the exponent of a probability that is at most 2^127. Below -126 the probability is 0. A NaN stays a NaN.
FA_INLINE F ClampFromBelow(F x) { return vmaxq_f32(Set(-127.0f), x); }
/// Clamps the exponent of any probability. Above 127.5 the probability is infinite.
FA_INLINE F ClampProbability(F x) { return vminq_f32(Set(128.0f), ClampFromBelow(x)); }
/// Returns the integer nearest to x. If two integers are equally near, it returns the odd one.
FA_INLINE F RoundExponent(F x) { return Sub(Add(x, Set(kExponentRounding)), Set(kExponentRounding)); }
/// Returns 2^n p with n = RoundExponent(x), and 0 where x < -126. One multiplication suffices, because no result is
/// subnormal.
FA_INLINE F ScaleProbability(F p, F x) {
  const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(Add(x, Set(kExponentRounding))), 23);
  return Mul(p, vreinterpretq_f32_u32(vandq_u32(power, vcgeq_f32(x, Set(-126.0f)))));
}

/// Exchanges lane j of r[i] with lane i of r[j].
FA_INLINE void Transpose(F (&r)[4]) {
  const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])),
                    b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
  const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])),
                    d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
  r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
  r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
  r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
  r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/// Turns two vectors of consecutive elements into the vector of their even and the vector of their odd elements.
FA_INLINE void SplitEvenOdd(F& a, F& b) {
  const F even = vuzp1q_f32(a, b), odd = vuzp2q_f32(a, b);
  a = even;
  b = odd;
}
/// Undoes SplitEvenOdd.
FA_INLINE void JoinEvenOdd(F& even, F& odd) {
  const F a = vzip1q_f32(even, odd), b = vzip2q_f32(even, odd);
  even = a;
  odd = b;
}

/// Lane i of the result is the sum of the lanes of r[i]. The order of the additions is the same for every i.
FA_INLINE F SumLanes(F (&r)[4]) { return vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3])); }

/// Lane i of the result is lane First + i of x for i < N, else 0.
template <int First, int N>
FA_INLINE F LanesFrom(F x) {
  const F moved = vextq_f32(x, Zero(), First);
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(moved), FirstLanes(N)));
}

#include "core/kernels/vec/vec_four_lanes.h"

// The next functions load 4 or 8 columns of compressed rows.

/// Loads N bytes into the first lanes.
template <int N>
FA_INLINE uint8x8_t LoadBytes(const uint8_t* p) {
  uint64_t bytes = 0;
  __builtin_memcpy(&bytes, p, N);
  return vcreate_u8(bytes);
}
/// Turns codes of e4m3 into 16-bit floats with the same exponent and fraction, which are 2^-8 times the numbers. For
/// NaN all bits are set.
FA_INLINE uint16x8_t WidenE4M3(uint8x8_t codes) {
  const int8x8_t nan = vreinterpret_s8_u8(vceq_u8(vand_u8(codes, vdup_n_u8(0x7f)), vdup_n_u8(0x7f)));
  const uint16x8_t words = vreinterpretq_u16_s16(vshlq_n_s16(vmovl_s8(vreinterpret_s8_u8(codes)), 7));
  return vorrq_u16(vandq_u16(words, vdupq_n_u16(0xbf80)), vreinterpretq_u16_s16(vmovl_s8(nan)));
}
/// The power of 2 by which LoadE4M3 and LoadFiniteE4M3 divide the numbers that they return.
inline constexpr float kE4M3Unit = 256.0f;
FA_INLINE F LoadE4M3(const uint8_t* p) { return WidenF16(vget_low_u16(WidenE4M3(LoadBytes<4>(p)))); }
/// How many vectors LoadFiniteE4M3 should load together. Two vectors share the operations on 16-bit floats.
inline constexpr int kE4M3AtOnce = 2;
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[1]) { x[0] = LoadE4M3(p); }
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[2]) {
  const uint16x8_t words = WidenE4M3(LoadBytes<8>(p));
  x[0] = WidenF16(vget_low_u16(words));
  x[1] = WidenF16(vget_high_u16(words));
}
/// Loads e5m2. Its codes are the upper bytes of 16-bit floats.
FA_INLINE F LoadE5M2(const uint8_t* p) {
  return WidenF16(vreinterpret_u16_u8(vzip1_u8(vdup_n_u8(0), LoadBytes<4>(p))));
}
/// Loads 4 numbers of 4 bits from 2 bytes. The lower half of a byte comes first.
FA_INLINE F LoadI4(const uint8_t* p) {
  uint16_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const int16x4_t upper = vshl_s16(vdup_n_s16(static_cast<int16_t>(four)), vcreate_s16(0x000000040008000cu));
  return vcvtq_f32_s32(vmovl_s16(vshr_n_s16(upper, 12)));  // the shift repeats the sign
}
