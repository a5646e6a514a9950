// The vocabulary of the AVX-512 levels: 16 f32 lanes.

#pragma once

#include <immintrin.h>

using F = __m512;
using I = __m512i;
using M = __mmask16;
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
/// The number of steps of the depth for which the micro-kernel loads the factors of a row together. With 1 it
/// broadcasts each factor.
inline constexpr int kStepsAtOnce = 1;
/// The last kLastSteps steps of a register block are done for a few rows at a time, so some rows are stored while
/// others are still multiplied. With 0, all rows take all steps together. A Zen 4 stores a vector every other cycle, so
/// 24 stores one after the other would delay the next block.
inline constexpr int kLastSteps = 4;
constexpr int StepsPerTurn(int /*vectors*/) { return 1; }
inline constexpr bool kFetchesValues = true;

FA_INLINE M FirstLanes(int64_t n) { return n >= 16 ? static_cast<M>(0xffff) : static_cast<M>((1u << n) - 1u); }

FA_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
FA_INLINE F LoadN(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
FA_INLINE void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
FA_INLINE void StoreN(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x); }
FA_INLINE F Set(float x) { return _mm512_set1_ps(x); }
FA_INLINE F Zero() { return _mm512_setzero_ps(); }
FA_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
FA_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
FA_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
FA_INLINE F Div(F a, F b) { return _mm512_div_ps(a, b); }
FA_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
FA_INLINE F Fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
FA_INLINE F Sqrt(F a) { return _mm512_sqrt_ps(a); }
FA_INLINE F Abs(F a) { return _mm512_abs_ps(a); }
/// If an operand is NaN, Max and Min return the second operand.
FA_INLINE F Max(F a, F b) { return _mm512_max_ps(a, b); }
FA_INLINE F Min(F a, F b) { return _mm512_min_ps(a, b); }
FA_INLINE F Select(M m, F yes, F no) { return _mm512_mask_mov_ps(no, m, yes); }
FA_INLINE M Equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
FA_INLINE M Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
FA_INLINE M SameBits(F a, F b) { return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_castps_si512(b)); }
FA_INLINE M Or(M a, M b) { return static_cast<M>(a | b); }
FA_INLINE bool Any(M m) { return m != 0; }
/// Returns the lanes where a is infinite or NaN.
FA_INLINE M NotFinite(F a) { return _mm512_fpclass_ps_mask(a, 0x01 | 0x08 | 0x10 | 0x80); }

FA_INLINE I LoadI(const int32_t* p) { return _mm512_loadu_si512(p); }
FA_INLINE I SetI(int32_t x) { return _mm512_set1_epi32(x); }
FA_INLINE I AddI(I a, I b) { return _mm512_add_epi32(a, b); }
FA_INLINE I SubI(I a, I b) { return _mm512_sub_epi32(a, b); }
FA_INLINE M GreaterI(I a, I b) { return _mm512_cmpgt_epi32_mask(a, b); }
/// Returns the lanes where word & bit is not 0.
FA_INLINE M TestBits(I word, I bit) { return _mm512_test_epi32_mask(word, bit); }
FA_INLINE F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }

FA_INLINE F LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FA_INLINE F LoadF16N(const uint16_t* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
}
FA_INLINE F LoadBF16(const uint16_t* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
FA_INLINE F LoadBF16N(const uint16_t* p, int64_t n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(FirstLanes(n), p)), 16));
}
/// Splits 32 elements into the 16 even and the 16 odd elements.
FA_INLINE void SplitBF16(F elements, F& even, F& odd) {
  const __m512i x = _mm512_castps_si512(elements);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
}
FA_INLINE F LoadI8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
FA_INLINE F LoadI8N(const int8_t* p, int64_t n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(FirstLanes(n), p)));
}
FA_INLINE __m256i ToF16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// Rounds to nearest even. A NaN stays a NaN, and becomes a quiet one.
FA_INLINE __m256i ToBF16(F x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
FA_INLINE void StoreF16(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToF16(x)); }
FA_INLINE void StoreF16N(uint16_t* p, F x, int64_t n) { _mm256_mask_storeu_epi16(p, FirstLanes(n), ToF16(x)); }
FA_INLINE void StoreBF16(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBF16(x)); }
FA_INLINE void StoreBF16N(uint16_t* p, F x, int64_t n) { _mm256_mask_storeu_epi16(p, FirstLanes(n), ToBF16(x)); }

/// Returns bits: bit j says whether byte j is not 0, for j < n <= 32.
FA_INLINE uint32_t NonZeroBytes(const uint8_t* p, int64_t n) {
  const __mmask32 lanes = n >= 32 ? 0xffffffffu : (1u << n) - 1u;
  const __m256i bytes = _mm256_maskz_loadu_epi8(lanes, p);
  return _mm256_test_epi8_mask(bytes, bytes);
}

/// Keeps a loaded vector of B in a register. Otherwise g++ 12 folds the load into every FMA, and the load ports become
/// the limit.
FA_INLINE void KeepInRegister(F& x) { asm("" : "+v"(x)); }
FA_INLINE void AddProduct(F x, F y, F& sum) { sum = Fma(x, y, sum); }

/// Returns f * 2^r for an integer r. Subnormal results are rounded only once.
FA_INLINE F ScaleByPowerOfTwo(F f, F r) { return _mm512_scalef_ps(f, r); }
FA_INLINE F RoundToInteger(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// These functions clamp nothing, because scalef takes any exponent.
FA_INLINE F ClampExponent(F x) { return x; }
FA_INLINE F ClampFromBelow(F x) { return x; }
FA_INLINE F ClampProbability(F x) { return x; }
FA_INLINE F RoundExponent(F x) { return RoundToInteger(x); }
/// Returns 2^n p with n = RoundExponent(x), and 0 where x < -126.
FA_INLINE F ScaleProbability(F p, F x) {
  // The masked instruction itself writes the 0.
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, Set(-126.0f), _CMP_NLT_UQ), p, RoundExponent(x));
}

/// Exchanges lane j of r[i] with lane i of r[j].
FA_INLINE void Transpose(F (&r)[16]) {
  F t[16];
  FA_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  FA_UNROLL for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  FA_UNROLL for (int i = 0; i < 16; i += 8) {
    FA_UNROLL for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0x88);
      t[i + 4 + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0xdd);
    }
  }
  FA_UNROLL for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0xdd);
  }
}

/// Turns two vectors of consecutive elements into the vector of their even and the vector of their odd elements.
FA_INLINE void SplitEvenOdd(F& a, F& b) {
  const I lane = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const F even = _mm512_permutex2var_ps(a, lane, b);
  b = _mm512_permutex2var_ps(a, _mm512_add_epi32(lane, _mm512_set1_epi32(1)), b);
  a = even;
}
/// Undoes SplitEvenOdd.
FA_INLINE void JoinEvenOdd(F& even, F& odd) {
  const I lane = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const F a = _mm512_permutex2var_ps(even, lane, odd);
  odd = _mm512_permutex2var_ps(even, _mm512_add_epi32(lane, _mm512_set1_epi32(8)), odd);
  even = a;
}

/// Lane i of the result is the sum of the lanes of r[i]. The order of the additions is the same for every i. Each step
/// combines two vectors into one, with half as many terms per sum, which takes 30 shuffles in all. A transposition
/// would take 64.
FA_INLINE F SumLanes(F (&r)[16]) {
  F a[8], b[4];
  FA_UNROLL for (int i = 0; i < 8; ++i) {
    a[i] = Add(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
  }
  FA_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
    b[i] = Add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  const F lo = Add(_mm512_shuffle_f32x4(b[0], b[1], 0x88), _mm512_shuffle_f32x4(b[0], b[1], 0xdd));
  const F hi = Add(_mm512_shuffle_f32x4(b[2], b[3], 0x88), _mm512_shuffle_f32x4(b[2], b[3], 0xdd));
  return Add(_mm512_shuffle_f32x4(lo, hi, 0x88), _mm512_shuffle_f32x4(lo, hi, 0xdd));
}

/// Lane i of the result is lane First + i of x for i < N, else 0.
template <int First, int N>
FA_INLINE F LanesFrom(F x) {
  const __m512i bits = _mm512_castps_si512(x);
  return _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(static_cast<M>((1u << N) - 1u), bits, bits, First));
}

// The next functions take vectors of 16 / R keys by R rows, where R is 1, 2, 4 or 8.

/// Lane i of the result is lane i % R of x.
template <int R>
FA_INLINE F RepeatLanes(F x) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  if constexpr (R == 8) return _mm512_shuffle_f32x4(x, x, 0x44);
  x = _mm512_shuffle_f32x4(x, x, 0x00);
  return R == 4 ? x : _mm512_permute_ps(x, R == 2 ? 0x44 : 0x00);
}
/// Lane i of the result combines all lanes of x that belong to row i % R. `join` combines two operands.
template <int R, typename Join>
FA_INLINE F JoinGroups(F x, const Join& join) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  x = join(x, _mm512_shuffle_f32x4(x, x, 0x4e));
  if constexpr (R <= 4) x = join(x, _mm512_shuffle_f32x4(x, x, 0xb1));
  if constexpr (R <= 2) x = join(x, _mm512_permute_ps(x, 0x4e));
  if constexpr (R == 1) x = join(x, _mm512_permute_ps(x, 0xb1));
  return x;
}
/// Lane i of the result is p[i / R], for n <= 16 / R numbers in p. Further lanes are 0.
template <int R>
FA_INLINE F SpreadKeys(const float* p, int64_t n) {
  static_assert(R == 1 || R == 2 || R == 4 || R == 8);
  constexpr int kShift = R == 8 ? 3 : R / 2;
  const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(lane, kShift), LoadN(p, n));
}

#include "core/kernels/vec/vec_e4m3_codes.h"

// The next functions load 16 columns of compressed rows.

/// Turns codes of e4m3 into 16-bit floats with the same exponent and fraction, which are 2^-8 times the numbers. The
/// code of NaN becomes the number 480.
FA_INLINE __m256i WidenFiniteE4M3(__m128i bytes) {
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  return _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
}
/// The power of 2 by which LoadE4M3 and LoadFiniteE4M3 divide the numbers that they return.
inline constexpr float kE4M3Unit = 256.0f;
FA_INLINE F LoadE4M3(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(bytes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
  return _mm512_cvtph_ps(_mm256_mask_mov_epi16(WidenFiniteE4M3(bytes), nan, _mm256_set1_epi16(0x7e00)));
}
/// How many vectors LoadFiniteE4M3 should load together. Loading two together would take wider vectors, and as much
/// time as loading them one by one.
inline constexpr int kE4M3AtOnce = 1;
/// Loads a vector. The code of NaN is loaded as the number 480.
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[1]) {
  x[0] = _mm512_cvtph_ps(WidenFiniteE4M3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
FA_INLINE F LoadE5M2(const uint8_t* p) {
  const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(words, 8));
}
/// Loads 16 numbers of 4 bits from 8 bytes. The lower half of a byte comes first.
FA_INLINE F LoadI4(const uint8_t* p) {
  const F number = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i halves = _mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4));
  return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(halves), number);  // the permutation uses four bits of each lane
}
