#include "core/random.h"

#include <Random123/philox.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "core/integer.h"

// This file computes keep bits, which say which elements dropout keeps. A call with dropout needs millions of them. One
// Philox block takes 20 multiplications and gives four words, one per keep bit. An AVX-512 register holds word w of 8
// consecutive blocks, and an AVX2 register holds word w of 4 blocks. The words lie in the low halves of 64-bit
// elements, because vpmuludq multiplies only these halves.

namespace fa::core {
namespace {

constexpr int kRounds = 10;
constexpr uint64_t kAll = uint64_t{1} << 32;

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

std::array<uint32_t, 4> Block(const PhiloxState& state, uint64_t block) {
  return Philox4x32({Low(block), High(block), Low(state.offset), High(state.offset)},
                    {Low(state.seed), High(state.seed)});
}

/// The type of the functions that implement DrawKeepWords for thresholds below 2^32.
using KeepWords = void (*)(const PhiloxState& state, uint32_t limit, const uint64_t* blocks, size_t count,
                           uint32_t* words);

void KeepWordsPortable(const PhiloxState& state, uint32_t limit, const uint64_t* blocks, size_t count,
                       uint32_t* words) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    for (uint64_t b = 0; b < 8; ++b) {
      const std::array<uint32_t, 4> drawn = Block(state, blocks[i] + b);
      for (size_t w = 0; w < 4; ++w) bits |= uint32_t{drawn[w] < limit} << (4 * b + w);
    }
    words[i] = bits;
  }
}

#if defined(__x86_64__)

/// Returns the keep bits of 8 consecutive Philox blocks as one word. The rounds of two registers of 4 blocks are
/// interleaved, which hides the latency of the multiplications.
[[gnu::target("avx2"), gnu::always_inline]] inline uint32_t KeepWordAvx2(const PhiloxState& state,
                                                                         __m256i flipped_limit, uint64_t block) {
  constexpr int kHalves = 2;
  const __m256i m0 = _mm256_set1_epi64x(PHILOX_M4x32_0), m1 = _mm256_set1_epi64x(PHILOX_M4x32_1);
  __m256i c0[kHalves], c1[kHalves], c2[kHalves], c3[kHalves];
  for (int i = 0; i < kHalves; ++i) {
    c0[i] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block) + 4 * i), _mm256_setr_epi64x(0, 1, 2, 3));
    c1[i] = _mm256_srli_epi64(c0[i], 32);
    c2[i] = _mm256_set1_epi64x(Low(state.offset));
    c3[i] = _mm256_set1_epi64x(High(state.offset));
  }
  uint32_t key0 = Low(state.seed), key1 = High(state.seed);
  for (int round = 0; round < kRounds; ++round) {
    const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
#pragma GCC unroll 2
    for (int i = 0; i < kHalves; ++i) {
      const __m256i p0 = _mm256_mul_epu32(c0[i], m0), p1 = _mm256_mul_epu32(c2[i], m1);
      c0[i] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1[i], k0));
      c1[i] = p1;
      c2[i] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3[i], k1));
      c3[i] = p0;
    }
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  // AVX2 compares only signed numbers. Flipping the top bit of both sides makes this a comparison of unsigned numbers.
  const __m256i flip = _mm256_set1_epi32(INT32_MIN);
  uint32_t word = 0;
#pragma GCC unroll 2
  for (int i = 0; i < kHalves; ++i) {
    const __m256i words01 = _mm256_blend_epi32(c0[i], _mm256_slli_epi64(c1[i], 32), 0xaa);
    const __m256i words23 = _mm256_blend_epi32(c2[i], _mm256_slli_epi64(c3[i], 32), 0xaa);
    const __m256i keep01 = _mm256_cmpgt_epi32(flipped_limit, _mm256_xor_si256(words01, flip));
    const __m256i keep23 = _mm256_cmpgt_epi32(flipped_limit, _mm256_xor_si256(words23, flip));
    // Each 128-bit lane holds words [0 1 0 1] and [2 3 2 3] of two blocks. They become [0 1 2 3] of each block. After
    // packing, every byte is 0 or -1 and gives one bit.
    const __m256i block_even = _mm256_unpacklo_epi64(keep01, keep23), block_odd = _mm256_unpackhi_epi64(keep01, keep23);
    const __m256i shorts = _mm256_packs_epi32(block_even, block_odd);
    const uint32_t mask = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(shorts, shorts)));
    word |= ((mask & 0xffu) | (mask >> 8 & 0xff00u)) << 16 * i;
  }
  return word;
}

[[gnu::target("avx2")]] void KeepWordsAvx2(const PhiloxState& state, uint32_t limit, const uint64_t* blocks,
                                           size_t count, uint32_t* words) {
  const __m256i flipped_limit = _mm256_set1_epi32(static_cast<int32_t>(limit ^ 0x80000000u));
  for (size_t i = 0; i < count; ++i) words[i] = KeepWordAvx2(state, flipped_limit, blocks[i]);
}

/// Puts words 0 and 1 (or 2 and 3) of every block next to each other.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i PairsOfWords(__m512i even, __m512i odd) {
  return _mm512_castps_si512(_mm512_mask_moveldup_ps(_mm512_castsi512_ps(even), 0xaaaa, _mm512_castsi512_ps(odd)));
}

/// Computes the keep bits of N groups of 8 Philox blocks, one word per group. The rounds of the groups are interleaved,
/// which hides the latency of the multiplications.
template <int N>
[[gnu::target("avx512f"), gnu::always_inline]] inline void KeepGroupsAvx512(const PhiloxState& state, uint32_t limit,
                                                                            const uint64_t* blocks, uint32_t* words) {
  // For intrinsics without a mask, GCC 12 warns of uninitialized variables (bug 105593). Intrinsics with a zeroing mask
  // of all lanes give the same code.
  constexpr __mmask8 kLanes = 0xff;
  constexpr int kXor3 = 0x96;
  const __m512i m0 = _mm512_set1_epi64(PHILOX_M4x32_0), m1 = _mm512_set1_epi64(PHILOX_M4x32_1);
  const __m512i eight = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // unpacking gives blocks 0..3 and 4..7
  __m512i c0[N], c1[N], c2[N], c3[N];
  for (int i = 0; i < N; ++i) {
    c0[i] = _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(blocks[i])), eight);
    c1[i] = _mm512_maskz_srli_epi64(kLanes, c0[i], 32);
    c2[i] = _mm512_set1_epi64(Low(state.offset));
    c3[i] = _mm512_set1_epi64(High(state.offset));
  }
  uint32_t key0 = Low(state.seed), key1 = High(state.seed);
  for (int round = 0; round < kRounds; ++round) {
    const __m512i k0 = _mm512_set1_epi64(key0), k1 = _mm512_set1_epi64(key1);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const __m512i p0 = _mm512_maskz_mul_epu32(kLanes, c0[i], m0), p1 = _mm512_maskz_mul_epu32(kLanes, c2[i], m1);
      c0[i] = _mm512_ternarylogic_epi32(_mm512_maskz_srli_epi64(kLanes, p1, 32), c1[i], k0, kXor3);
      c1[i] = p1;
      c2[i] = _mm512_ternarylogic_epi32(_mm512_maskz_srli_epi64(kLanes, p0, 32), c3[i], k1, kXor3);
      c3[i] = p0;
    }
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  const __m512i bound = _mm512_set1_epi32(static_cast<int32_t>(limit));
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    const __m512i words01 = PairsOfWords(c0[i], c1[i]), words23 = PairsOfWords(c2[i], c3[i]);
    const __mmask16 first = _mm512_cmplt_epu32_mask(_mm512_maskz_unpacklo_epi64(kLanes, words01, words23), bound);
    const __mmask16 last = _mm512_cmplt_epu32_mask(_mm512_maskz_unpackhi_epi64(kLanes, words01, words23), bound);
    words[i] = first | uint32_t{last} << 16;
  }
}

[[gnu::target("avx512f")]] void KeepWordsAvx512(const PhiloxState& state, uint32_t limit, const uint64_t* blocks,
                                                size_t count, uint32_t* words) {
  constexpr size_t kGroups = 4;
  size_t i = 0;
  for (; i + kGroups <= count; i += kGroups) KeepGroupsAvx512<kGroups>(state, limit, blocks + i, words + i);
  for (; i < count; ++i) KeepGroupsAvx512<1>(state, limit, blocks + i, words + i);
}

#elif defined(__aarch64__)

/// Returns the keep bits of the 16 elements in the Philox blocks [block, block + 4). A vector holds word w of the four
/// blocks. A multiplication gives its 64-bit products in two vectors, from which the high halves are collected.
uint32_t KeepHalfNeon(const PhiloxState& state, uint32_t threshold, uint64_t block) {
  const uint64_t b[4] = {block, block + 1, block + 2, block + 3};
  uint32x4_t c0 = {Low(b[0]), Low(b[1]), Low(b[2]), Low(b[3])};
  uint32x4_t c1 = {High(b[0]), High(b[1]), High(b[2]), High(b[3])};
  uint32x4_t c2 = vdupq_n_u32(Low(state.offset)), c3 = vdupq_n_u32(High(state.offset));
  const uint32x4_t m0 = vdupq_n_u32(PHILOX_M4x32_0), m1 = vdupq_n_u32(PHILOX_M4x32_1);
  uint32_t key0 = Low(state.seed), key1 = High(state.seed);
  const auto high = [](uint32x4_t a, uint32x4_t m) {
    const uint64x2_t low = vmull_u32(vget_low_u32(a), vget_low_u32(m)), up = vmull_high_u32(a, m);
    return vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(up));
  };
  for (int round = 0; round < kRounds; ++round) {
    const uint32x4_t next0 = veorq_u32(veorq_u32(high(c2, m1), c1), vdupq_n_u32(key0));
    const uint32x4_t next2 = veorq_u32(veorq_u32(high(c0, m0), c3), vdupq_n_u32(key1));
    c1 = vmulq_u32(c2, m1);
    c3 = vmulq_u32(c0, m0);
    c0 = next0;
    c2 = next2;
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  // Word w of block i gives bit 4 i + w.
  const uint32x4_t limit = vdupq_n_u32(threshold);
  const uint32x4_t block_bit = {1, 1u << 4, 1u << 8, 1u << 12};
  const auto kept = [&](uint32x4_t words, int w) {
    return vandq_u32(vcltq_u32(words, limit), vshlq_u32(block_bit, vdupq_n_s32(w)));
  };
  return vaddvq_u32(vorrq_u32(vorrq_u32(kept(c0, 0), kept(c1, 1)), vorrq_u32(kept(c2, 2), kept(c3, 3))));
}

void KeepWordsNeon(const PhiloxState& state, uint32_t limit, const uint64_t* blocks, size_t count, uint32_t* words) {
  for (size_t i = 0; i < count; ++i) {
    words[i] = KeepHalfNeon(state, limit, blocks[i]) | KeepHalfNeon(state, limit, blocks[i] + 4) << 16;
  }
}

#endif

KeepWords KeepWordsOf(Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512)) return KeepWordsAvx512;
  if (Includes(isa, Isa::kAvx2)) return KeepWordsAvx2;
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeon)) return KeepWordsNeon;
#else
  static_cast<void>(isa);
#endif
  return KeepWordsPortable;
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key) {
  using Engine = r123::Philox4x32_R<kRounds>;
  const Engine::ctr_type words =
      Engine()(Engine::ctr_type{{counter[0], counter[1], counter[2], counter[3]}}, Engine::key_type{{key[0], key[1]}});
  return {words[0], words[1], words[2], words[3]};
}

uint32_t PhiloxWord(const PhiloxState& state, uint64_t index) { return Block(state, index / 4)[index % 4]; }

uint64_t KeepThreshold(float keep_prob) {
  // The product is exact, because it is a float times a power of two.
  return static_cast<uint64_t>(std::floor(static_cast<double>(keep_prob) * static_cast<double>(kAll)));
}

void DrawKeepWords(const PhiloxState& state, uint64_t threshold, std::span<const uint64_t> blocks, uint32_t* words,
                   Isa isa) {
  if (threshold >= kAll) {  // the threshold does not fit 32 bits
    std::fill_n(words, blocks.size(), ~0u);
  } else {
    KeepWordsOf(isa)(state, Low(threshold), blocks.data(), blocks.size(), words);
  }
}

void FillKeepBits(const PhiloxState& state, uint64_t threshold, uint64_t first, int64_t bits, std::span<uint32_t> words,
                  Isa isa) {
  if (bits <= 0) return;
  const size_t count = static_cast<size_t>(CeilDiv(bits, 32));
  assert(words.size() >= count);
  const unsigned shift = first % 4;
  // If `first` lies inside a block, each written word takes its last bits from the next drawn word.
  constexpr size_t kAtOnce = 64;
  std::array<uint64_t, kAtOnce + 1> blocks;
  std::array<uint32_t, kAtOnce + 1> drawn;
  uint64_t block = first / 4;
  for (size_t from = 0; from < count; from += kAtOnce) {
    const size_t here = std::min(kAtOnce, count - from), draws = here + (shift != 0);
    for (size_t i = 0; i < draws; ++i) blocks[i] = block + 8 * i;
    block += 8 * here;
    DrawKeepWords(state, threshold, std::span(blocks).first(draws), drawn.data(), isa);
    for (size_t i = 0; i < here; ++i) {
      words[from + i] = shift == 0 ? drawn[i] : drawn[i] >> shift | drawn[i + 1] << (32 - shift);
    }
  }
  if (bits % 32 != 0) words[count - 1] &= (1u << bits % 32) - 1;
}

}  // namespace fa::core
