// The vocabulary of the portable level, for any CPU: the compiler's vectors of 4 f32 lanes. A product and a sum are
// rounded separately (the build turns contraction off), so all CPUs give the same bits.

#pragma once

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef int32_t M __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;
/// The number of steps along the inner dimension for which the micro-kernel loads the factors of a row with one load.
/// If the number is 1, the micro-kernel broadcasts each factor.
inline constexpr int kStepsAtOnce = 1;
inline constexpr int kLastSteps = 0;
constexpr int StepsPerTurn(int /*vectors*/) { return 1; }
inline constexpr bool kFetchesValues = true;

template <typename To, typename From>
FA_INLINE To BitCast(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}

FA_INLINE M FirstLanes(int64_t n) { return I{0, 1, 2, 3} < static_cast<int32_t>(n < 4 ? n : 4); }
FA_INLINE F Load(const float* p) {
  F x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FA_INLINE F LoadN(const float* p, int64_t n) {
  F x = {};
  for (int i = 0; i < 4; ++i) x[i] = i < n ? p[i] : 0.0f;
  return x;
}
FA_INLINE void Store(float* p, F x) { __builtin_memcpy(p, &x, sizeof x); }
FA_INLINE void StoreN(float* p, F x, int64_t n) {
  for (int i = 0; i < 4; ++i) {
    if (i < n) p[i] = x[i];
  }
}
FA_INLINE F Set(float x) { return F{x, x, x, x}; }
FA_INLINE F Zero() { return F{}; }
FA_INLINE F Add(F a, F b) { return a + b; }
FA_INLINE F Sub(F a, F b) { return a - b; }
FA_INLINE F Mul(F a, F b) { return a * b; }
FA_INLINE F Div(F a, F b) { return a / b; }
FA_INLINE F Fma(F a, F b, F c) { return a * b + c; }
FA_INLINE F Fms(F a, F b, F c) { return a * b - c; }
FA_INLINE F Sqrt(F a) {
  for (int i = 0; i < 4; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
FA_INLINE F Abs(F a) { return BitCast<F>(BitCast<I>(a) & 0x7fffffff); }
/// If an operand is NaN, Max and Min return the second operand.
FA_INLINE F Max(F a, F b) { return a > b ? a : b; }
FA_INLINE F Min(F a, F b) { return a < b ? a : b; }
FA_INLINE F Select(M m, F yes, F no) { return m ? yes : no; }
FA_INLINE M Equal(F a, F b) { return a == b; }
FA_INLINE M Less(F a, F b) { return a < b; }
FA_INLINE M SameBits(F a, F b) { return BitCast<I>(a) == BitCast<I>(b); }
FA_INLINE M Or(M a, M b) { return a | b; }
FA_INLINE bool Any(M m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }
/// Returns the lanes where a is infinite or NaN.
FA_INLINE M NotFinite(F a) { return (BitCast<I>(a) & 0x7f800000) == 0x7f800000; }

FA_INLINE I LoadI(const int32_t* p) {
  I x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FA_INLINE I SetI(int32_t x) { return I{x, x, x, x}; }
FA_INLINE I AddI(I a, I b) { return a + b; }
FA_INLINE I SubI(I a, I b) { return a - b; }
FA_INLINE M GreaterI(I a, I b) { return a > b; }
/// Returns the lanes where word & bit is not 0.
FA_INLINE M TestBits(I word, I bit) { return (word & bit) != 0; }
FA_INLINE F ToFloat(I a) { return __builtin_convertvector(a, F); }

FA_INLINE float F16ToFloat(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 31) return BitCast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return BitCast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact: subnormal or 0
  return sign != 0 ? -magnitude : magnitude;
}
/// Rounds to nearest even, subnormals and overflow included. A NaN stays a NaN.
FA_INLINE uint16_t FloatToF16(float x) {
  const uint32_t bits = BitCast<uint32_t>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // Rounds to 65536 or more, so the result is infinite.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: after adding 0.5, the low bits are the value in units of 2^-24
    const float shifted = BitCast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitCast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
FA_INLINE uint16_t FloatToBF16(float x) {
  const uint32_t bits = BitCast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
FA_INLINE F LoadF16N(const uint16_t* p, int64_t n) {
  F x = {};
  for (int i = 0; i < 4; ++i) x[i] = i < n ? F16ToFloat(p[i]) : 0.0f;
  return x;
}
FA_INLINE F LoadBF16N(const uint16_t* p, int64_t n) {
  F x = {};
  for (int i = 0; i < 4; ++i) x[i] = i < n ? BitCast<float>(static_cast<uint32_t>(p[i]) << 16) : 0.0f;
  return x;
}
FA_INLINE F LoadF16(const uint16_t* p) { return LoadF16N(p, 4); }
FA_INLINE F LoadBF16(const uint16_t* p) { return LoadBF16N(p, 4); }
/// Splits 8 elements into the four even and the four odd elements.
FA_INLINE void SplitBF16(F elements, F& even, F& odd) {
  const I x = BitCast<I>(elements);
  even = BitCast<F>(x << 16);
  odd = BitCast<F>(x & static_cast<int32_t>(0xffff0000u));
}
FA_INLINE F LoadI8N(const int8_t* p, int64_t n) {
  F x = {};
  for (int i = 0; i < 4; ++i) x[i] = i < n ? static_cast<float>(p[i]) : 0.0f;
  return x;
}
FA_INLINE F LoadI8(const int8_t* p) { return LoadI8N(p, 4); }
FA_INLINE void StoreF16N(uint16_t* p, F x, int64_t n) {
  for (int i = 0; i < 4 && i < n; ++i) p[i] = FloatToF16(x[i]);
}
FA_INLINE void StoreBF16N(uint16_t* p, F x, int64_t n) {
  for (int i = 0; i < 4 && i < n; ++i) p[i] = FloatToBF16(x[i]);
}
FA_INLINE void StoreF16(uint16_t* p, F x) { StoreF16N(p, x, 4); }
FA_INLINE void StoreBF16(uint16_t* p, F x) { StoreBF16N(p, x, 4); }

/// Returns bits: bit j says whether byte j is not 0, for j < n <= 32.
FA_INLINE uint32_t NonZeroBytes(const uint8_t* p, int64_t n) {
  uint32_t bits = 0;
  for (int64_t j = 0; j < n; ++j) bits |= static_cast<uint32_t>(p[j] != 0) << j;
  return bits;
}

FA_INLINE void KeepInRegister(F& /*x*/) {}
FA_INLINE void AddProduct(F x, F y, F& sum) { sum = Fma(x, y, sum); }

/// Multiplies f by 2^(r/2) and then by 2^(r - r/2). With these two steps a subnormal result is rounded only once.
FA_INLINE F ScaleByPowerOfTwo(F f, F r) {
  const I n = __builtin_convertvector(r, I), half = n >> 1;
  return f * BitCast<F>((half + 127) << 23) * BitCast<F>((n - half + 127) << 23);
}
/// Rounds to nearest even, exactly for |x| < 2^22, because x + 1.5 * 2^23 has no bits below 1.
FA_INLINE F RoundToInteger(F x) { return (x + 12582912.0f) - 12582912.0f; }
/// Clamps the exponent of a power of 2. Below -152 the power is 0, and above 129 it is infinite. A NaN stays a NaN.
FA_INLINE F ClampExponent(F x) { return Min(Set(129.0f), Max(Set(-152.0f), x)); }
/// The low bits of x + 1.5 * 2^23 are n, the integer nearest to x, because the sum has no bits below 1. This constant
/// also adds 127, the bias of exponents. So the low bits of x + kExponentRounding are the exponent field of 2^n.
inline constexpr float kExponentRounding = 12582912.0f + 127.0f;
/// Clamps the exponent of a probability that is at most 2^127. Below -126 the probability is 0. A NaN stays a NaN.
FA_INLINE F ClampFromBelow(F x) { return Max(Set(-127.0f), x); }
/// Clamps the exponent of any probability. Above 127.5 the probability is infinite.
FA_INLINE F ClampProbability(F x) { return Min(Set(128.0f), ClampFromBelow(x)); }
/// Returns the integer nearest to x. If two integers are equally near, it returns the odd one.
FA_INLINE F RoundExponent(F x) { return (x + kExponentRounding) - kExponentRounding; }
/// Returns 2^n p with n = RoundExponent(x), and 0 where x < -126. One multiplication suffices, because no result is
/// subnormal.
FA_INLINE F ScaleProbability(F p, F x) {
  const I power = BitCast<I>(x + kExponentRounding) << 23;
  return p * BitCast<F>(power & (x >= Set(-126.0f)));
}

/// Exchanges lane j of r[i] with lane i of r[j].
FA_INLINE void Transpose(F (&r)[4]) {
  const F t[4] = {r[0], r[1], r[2], r[3]};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) r[i][j] = t[j][i];
  }
}

/// Turns two vectors of consecutive elements into the vector of their even and the vector of their odd elements.
FA_INLINE void SplitEvenOdd(F& a, F& b) {
  const F even = {a[0], a[2], b[0], b[2]}, odd = {a[1], a[3], b[1], b[3]};
  a = even;
  b = odd;
}
/// Undoes SplitEvenOdd.
FA_INLINE void JoinEvenOdd(F& even, F& odd) {
  const F a = {even[0], odd[0], even[1], odd[1]}, b = {even[2], odd[2], even[3], odd[3]};
  even = a;
  odd = b;
}

/// Lane i of the result is the sum of the lanes of r[i]. The order of the additions is the same for every i.
FA_INLINE F SumLanes(F (&r)[4]) {
  Transpose(r);
  return Add(Add(r[0], r[1]), Add(r[2], r[3]));
}

/// Lane i of the result is lane First + i of x for i < N, else 0.
template <int First, int N>
FA_INLINE F LanesFrom(F x) {
  F moved = {};
  for (int i = 0; i < N; ++i) moved[i] = x[First + i];
  return moved;
}

#include "core/kernels/vec/vec_four_lanes.h"

// The functions below load 4 columns of rows whose elements have 8 or 4 bits.

/// The value of every e4m3 code.
struct E4M3Numbers {
  float of[256];
  constexpr E4M3Numbers() : of() {
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      float x = static_cast<float>(exponent == 0 ? fraction : 8 + fraction) * 0x1p-9f;
      for (int i = 1; i < exponent; ++i) x *= 2;
      if ((code & 0x7f) == 0x7f) x = __builtin_nanf("");
      of[code] = code >= 128 ? -x : x;
    }
  }
};
inline constexpr E4M3Numbers kE4M3Numbers;

/// The power of 2 by which LoadE4M3 divides the numbers that it returns.
inline constexpr float kE4M3Unit = 1.0f;
FA_INLINE F LoadE4M3(const uint8_t* p) {
  const float(&number)[256] = kE4M3Numbers.of;
  return F{number[p[0]], number[p[1]], number[p[2]], number[p[3]]};
}
inline constexpr int kE4M3AtOnce = 1;
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[1]) { x[0] = LoadE4M3(p); }
/// Loads e5m2. Its codes are the upper bytes of 16-bit floats.
FA_INLINE F LoadE5M2(const uint8_t* p) {
  uint16_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = static_cast<uint16_t>(p[i] << 8);
  return LoadF16(words);
}
/// Loads 4 numbers of 4 bits from 2 bytes. The lower half of a byte comes first.
FA_INLINE F LoadI4(const uint8_t* p) {
  float x[4];
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(((p[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
  return Load(x);
}
