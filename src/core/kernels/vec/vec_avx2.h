// The vocabulary of the AVX2 level (AVX2, FMA, F16C): 8 f32 lanes.

#pragma once

#include <immintrin.h>

using F = __m256;
using I = __m256i;
using M = __m256;  // all ones or all zeros in each lane
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
/// The number of steps of the depth for which the micro-kernel loads the factors of a row together. With 1 it
/// broadcasts each factor.
inline constexpr int kStepsAtOnce = 1;
inline constexpr int kLastSteps = 0;
/// Returns the steps per iteration for a register block that is `vectors` vectors wide. With two steps 6x16 is faster,
/// above all while the core's other hyper-thread is busy. 4x24 has no register left for a second step.
constexpr int StepsPerTurn(int vectors) { return vectors == 2 ? 2 : 1; }
/// Whether the products of strips prefetch later rows of V. Lists of lines are prefetched in any case, and kernels of
/// few rows prefetch in any case. A prefetch per step is one more load for 12 FMAs, which slows 4x24 if V lies in L2.
/// If V comes from L3, a prefetch gains nothing.
inline constexpr bool kFetchesValues = false;

FA_INLINE M FirstLanes(int64_t n) {
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < 8 ? n : 8)),
                                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}

FA_INLINE F Load(const float* p) { return _mm256_loadu_ps(p); }
FA_INLINE F LoadN(const float* p, int64_t n) { return _mm256_maskload_ps(p, _mm256_castps_si256(FirstLanes(n))); }
FA_INLINE void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
FA_INLINE void StoreN(float* p, F x, int64_t n) { _mm256_maskstore_ps(p, _mm256_castps_si256(FirstLanes(n)), x); }
FA_INLINE F Set(float x) { return _mm256_set1_ps(x); }
FA_INLINE F Zero() { return _mm256_setzero_ps(); }
FA_INLINE F Add(F a, F b) { return _mm256_add_ps(a, b); }
FA_INLINE F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
FA_INLINE F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
FA_INLINE F Div(F a, F b) { return _mm256_div_ps(a, b); }
FA_INLINE F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
FA_INLINE F Fms(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
FA_INLINE F Sqrt(F a) { return _mm256_sqrt_ps(a); }
FA_INLINE F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/// If an operand is NaN, Max and Min return the second operand.
FA_INLINE F Max(F a, F b) { return _mm256_max_ps(a, b); }
FA_INLINE F Min(F a, F b) { return _mm256_min_ps(a, b); }
FA_INLINE F Select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
FA_INLINE M Equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
FA_INLINE M Less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
FA_INLINE M SameBits(F a, F b) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
FA_INLINE M Or(M a, M b) { return _mm256_or_ps(a, b); }
FA_INLINE bool Any(M m) { return _mm256_movemask_ps(m) != 0; }
/// Returns the lanes where a is infinite or NaN.
FA_INLINE M NotFinite(F a) { return _mm256_cmp_ps(Abs(a), _mm256_set1_ps(3.402823466e38f), _CMP_NLE_UQ); }

FA_INLINE I LoadI(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
FA_INLINE I SetI(int32_t x) { return _mm256_set1_epi32(x); }
FA_INLINE I AddI(I a, I b) { return _mm256_add_epi32(a, b); }
FA_INLINE I SubI(I a, I b) { return _mm256_sub_epi32(a, b); }
FA_INLINE M GreaterI(I a, I b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)); }
/// Returns the lanes where word & bit is not 0. `bit` has a single bit.
FA_INLINE M TestBits(I word, I bit) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, bit), bit));
}
FA_INLINE F ToFloat(I a) { return _mm256_cvtepi32_ps(a); }

/// Returns eight 16-bit values, of which the first n come from memory and the others are 0. They are copied first,
/// because AVX2 has no masked 16-bit load.
FA_INLINE __m128i Load16N(const uint16_t* p, int64_t n) {
  alignas(16) uint16_t staged[8] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) staged[i] = p[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(staged));
}
FA_INLINE void Store16N(uint16_t* p, __m128i x, int64_t n) {
  alignas(16) uint16_t staged[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(staged), x);
  for (int64_t i = 0; i < n && i < 8; ++i) p[i] = staged[i];
}
FA_INLINE F WidenBF16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
FA_INLINE F LoadF16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
FA_INLINE F LoadF16N(const uint16_t* p, int64_t n) { return _mm256_cvtph_ps(Load16N(p, n)); }
FA_INLINE F LoadBF16(const uint16_t* p) { return WidenBF16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
FA_INLINE F LoadBF16N(const uint16_t* p, int64_t n) { return WidenBF16(Load16N(p, n)); }
/// Splits 16 elements into the eight even and the eight odd elements.
FA_INLINE void SplitBF16(F elements, F& even, F& odd) {
  const __m256i x = _mm256_castps_si256(elements);
  even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u))));
}
FA_INLINE F LoadI8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
FA_INLINE F LoadI8N(const int8_t* p, int64_t n) {
  alignas(8) int8_t staged[8] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) staged[i] = p[i];
  return LoadI8(staged);
}
FA_INLINE __m128i ToF16(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// Rounds to nearest even. A NaN stays a NaN, and becomes a quiet one.
FA_INLINE __m128i ToBF16(F x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i kept = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m256i high = _mm256_srli_epi32(kept, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
FA_INLINE void StoreF16(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToF16(x)); }
FA_INLINE void StoreF16N(uint16_t* p, F x, int64_t n) { Store16N(p, ToF16(x), n); }
FA_INLINE void StoreBF16(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBF16(x)); }
FA_INLINE void StoreBF16N(uint16_t* p, F x, int64_t n) { Store16N(p, ToBF16(x), n); }

/// Returns bits: bit j says whether byte j is not 0, for j < n <= 32.
FA_INLINE uint32_t NonZeroBytes(const uint8_t* p, int64_t n) {
  if (n >= 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())));
  }
  uint32_t bits = 0;
  for (int64_t j = 0; j < n; ++j) bits |= static_cast<uint32_t>(p[j] != 0) << j;
  return bits;
}

/// Keeps a loaded vector of B in a register. Otherwise g++ 12 folds the load into every FMA, and the load ports become
/// the limit.
FA_INLINE void KeepInRegister(F& x) { asm("" : "+x"(x)); }
/// Computes sum += x y in the register of sum. Otherwise g++ 12 puts the sum into another register in every step of an
/// unrolled loop, and moves all sums back at the end of the loop.
FA_INLINE void AddProduct(F x, F y, F& sum) { asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y)); }

/// Multiplies f by 2^(r/2) and then by 2^(r - r/2). With these two steps a subnormal result is rounded only once.
FA_INLINE F ScaleByPowerOfTwo(F f, F r) {
  const __m256i n = _mm256_cvtps_epi32(r), half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
  return Mul(Mul(f, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
FA_INLINE F RoundToInteger(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// Clamps the exponent of a power of 2. Below -152 the power is 0, and above 129 it is infinite. A NaN stays a NaN.
FA_INLINE F ClampExponent(F x) { return Min(Set(129.0f), Max(Set(-152.0f), x)); }
/// x + 1.5 * 2^23 has no bits below 1, so its low bits are n, the integer nearest to x. With 127, the bias of
/// exponents, added too, the low bits are the exponent field of 2^n.
inline constexpr float kExponentRounding = 12582912.0f + 127.0f;
/// Clamps the exponent of a probability that is at most 2^127. Below -126 the probability is 0. A NaN stays a NaN.
FA_INLINE F ClampFromBelow(F x) { return Max(Set(-127.0f), x); }
/// Clamps the exponent of any probability. Above 127.5 the probability is infinite.
FA_INLINE F ClampProbability(F x) { return Min(Set(128.0f), ClampFromBelow(x)); }
/// Returns the integer nearest to x. If two integers are equally near, it returns the odd one.
FA_INLINE F RoundExponent(F x) { return Sub(Add(x, Set(kExponentRounding)), Set(kExponentRounding)); }
/// Returns 2^n p with n = RoundExponent(x), and 0 where x < -126. One multiplication suffices, because no result is
/// subnormal.
FA_INLINE F ScaleProbability(F p, F x) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(Add(x, Set(kExponentRounding))), 23);
  return Mul(p, _mm256_and_ps(_mm256_castsi256_ps(power), _mm256_cmp_ps(x, Set(-126.0f), _CMP_GE_OQ)));
}

/// Exchanges lane j of r[i] with lane i of r[j].
FA_INLINE void Transpose(F (&r)[8]) {
  F t[8];
  FA_UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  FA_UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  FA_UNROLL for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  FA_UNROLL for (int i = 0; i < 8; ++i) r[i] = t[i];
}

/// Turns two vectors of consecutive elements into the vector of their even and the vector of their odd elements.
FA_INLINE void SplitEvenOdd(F& a, F& b) {
  const __m256d low = _mm256_castps_pd(_mm256_permute2f128_ps(a, b, 0x20));
  const __m256d high = _mm256_castps_pd(_mm256_permute2f128_ps(a, b, 0x31));
  // The low half takes elements of a, the high half elements of b.
  a = _mm256_shuffle_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high), 0x88);
  b = _mm256_shuffle_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high), 0xdd);
}
/// Undoes SplitEvenOdd.
FA_INLINE void JoinEvenOdd(F& even, F& odd) {
  const F low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  even = _mm256_permute2f128_ps(low, high, 0x20);
  odd = _mm256_permute2f128_ps(low, high, 0x31);
}

/// Lane i of the result is the sum of the lanes of r[i]. The order of the additions is the same for every i.
FA_INLINE F SumLanes(F (&r)[8]) {
  Transpose(r);
  return Add(Add(Add(r[0], r[1]), Add(r[2], r[3])), Add(Add(r[4], r[5]), Add(r[6], r[7])));
}

/// Lane i of the result is lane First + i of x for i < N, else 0.
template <int First, int N>
FA_INLINE F LanesFrom(F x) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const F moved = _mm256_permutevar8x32_ps(x, _mm256_add_epi32(lane, _mm256_set1_epi32(First)));
  return _mm256_and_ps(moved, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(N), lane)));
}

// The next functions take vectors of 8 / R keys by R rows: lane i belongs to row i % R. R is 1, 2, 4 or 8.

/// Lane i of the result is lane i % R of x.
template <int R>
FA_INLINE F RepeatLanes(F x) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  if constexpr (R == 8) return x;
  x = _mm256_permute2f128_ps(x, x, 0x00);
  return R == 4 ? x : _mm256_permute_ps(x, R == 2 ? 0x44 : 0x00);
}
/// Lane i of the result combines all lanes of x that belong to row i % R. `join` combines two operands.
template <int R, typename Join>
FA_INLINE F JoinGroups(F x, const Join& join) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  if constexpr (R <= 4) x = join(x, _mm256_permute2f128_ps(x, x, 0x01));
  if constexpr (R <= 2) x = join(x, _mm256_permute_ps(x, 0x4e));
  if constexpr (R == 1) x = join(x, _mm256_permute_ps(x, 0xb1));
  return x;
}
/// Lane i of the result is p[i / R], for n <= 8 / R numbers in p. Further lanes are 0.
template <int R>
FA_INLINE F SpreadKeys(const float* p, int64_t n) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  constexpr int kShift = R == 8 ? 3 : R / 2;
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_permutevar8x32_ps(LoadN(p, n), _mm256_srli_epi32(lane, kShift));
}

#include "core/kernels/vec/vec_e4m3_codes.h"

// The next functions load 8 columns of compressed rows.

/// The power of 2 by which LoadE4M3 and LoadFiniteE4M3 divide the numbers that they return.
inline constexpr float kE4M3Unit = 256.0f;
/// Loads e4m3 by putting exponent and fraction into 16-bit floats, which are converted to f32.
FA_INLINE F LoadE4M3(const uint8_t* p) {
  const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i x = _mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  const __m128i magnitude = _mm_and_si128(words, _mm_set1_epi16(0x7f));
  return _mm256_cvtph_ps(_mm_or_si128(x, _mm_srli_epi16(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), 1)));
}
/// How many vectors LoadFiniteE4M3 should load together. Two vectors share the operations on 16-bit floats.
inline constexpr int kE4M3AtOnce = 2;
/// Loads one or two vectors. The code of NaN is loaded as the number 480, which saves a third of the operations.
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[1]) {
  const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  x[0] = _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80))));
}
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[2]) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  x[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
FA_INLINE F LoadE5M2(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
}
/// Loads 8 numbers of 4 bits from 4 bytes. The lower half of a byte comes first.
FA_INLINE F LoadI4(const uint8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  const __m256i place = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(word), place), 28));
}
