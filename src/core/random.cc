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

// Makes keep bits by the million: a block of Philox gives four words, hence four bits, for 20 multiplications. The
// vector forms hold word w of 8 (4) consecutive blocks in the even 32-bit halves of a register, where vpmuludq wants
// its factors; the odd halves of products and shifts are never read. A round is 2 multiplications, 2 shifts and 4 xors
// for all blocks, and the comparison masks give 32 (16) bits.

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

/// Bits of the 32 elements of blocks [block, block + 8).
using KeepWord = uint32_t (*)(const PhiloxState& state, uint64_t threshold, uint64_t block);

uint32_t KeepWordPortable(const PhiloxState& state, uint64_t threshold, uint64_t block) {
  uint32_t bits = 0;
  for (uint64_t b = 0; b < 8; ++b) {
    const std::array<uint32_t, 4> words = Block(state, block + b);
    for (size_t w = 0; w < 4; ++w) bits |= uint32_t{words[w] < threshold} << (4 * b + w);
  }
  return bits;
}

#if defined(__x86_64__)

[[gnu::target("avx2")]] uint32_t KeepHalfAvx2(const PhiloxState& state, uint32_t threshold, uint64_t block) {
  const __m256i number =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block)), _mm256_setr_epi64x(0, 1, 2, 3));
  __m256i c0 = number, c1 = _mm256_srli_epi64(number, 32);
  __m256i c2 = _mm256_set1_epi64x(Low(state.offset)), c3 = _mm256_set1_epi64x(High(state.offset));
  const __m256i m0 = _mm256_set1_epi64x(PHILOX_M4x32_0), m1 = _mm256_set1_epi64x(PHILOX_M4x32_1);
  uint32_t key0 = Low(state.seed), key1 = High(state.seed);
  for (int round = 0; round < kRounds; ++round) {
    const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(key0));
    c1 = p1;
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(key1));
    c3 = p0;
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  // Words 0|1 and 2|3 side by side; flipping the top bit turns the signed comparison into an unsigned one.
  const __m256i flip = _mm256_set1_epi32(INT32_MIN);
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(threshold ^ 0x80000000u));
  const __m256i words01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
  const __m256i words23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
  const __m256i keep01 = _mm256_cmpgt_epi32(limit, _mm256_xor_si256(words01, flip));
  const __m256i keep23 = _mm256_cmpgt_epi32(limit, _mm256_xor_si256(words23, flip));
  // Lane by lane [0 1 0 1] [2 3 2 3] -> [0 1 2 3] for two blocks; bytes of 0 or -1 then give one bit each.
  const __m256i block_even = _mm256_unpacklo_epi64(keep01, keep23), block_odd = _mm256_unpackhi_epi64(keep01, keep23);
  const __m256i shorts = _mm256_packs_epi32(block_even, block_odd);
  const uint32_t mask = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(shorts, shorts)));
  return (mask & 0xffu) | (mask >> 8 & 0xff00u);
}

[[gnu::target("avx2")]] uint32_t KeepWordAvx2(const PhiloxState& state, uint64_t threshold, uint64_t block) {
  const uint32_t limit = Low(threshold);
  return KeepHalfAvx2(state, limit, block) | KeepHalfAvx2(state, limit, block + 4) << 16;
}

[[gnu::target("avx512f")]] uint32_t KeepWordAvx512(const PhiloxState& state, uint64_t threshold, uint64_t block) {
  // All lanes, in the zeroing forms: the plain ones trip -Wuninitialized of GCC 12 (bug 105593). The code is the same.
  constexpr __mmask8 kLanes = 0xff;
  const __m512i number =
      _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(block)), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  __m512i c0 = number, c1 = _mm512_maskz_srli_epi64(kLanes, number, 32);
  __m512i c2 = _mm512_set1_epi64(Low(state.offset)), c3 = _mm512_set1_epi64(High(state.offset));
  const __m512i m0 = _mm512_set1_epi64(PHILOX_M4x32_0), m1 = _mm512_set1_epi64(PHILOX_M4x32_1);
  uint32_t key0 = Low(state.seed), key1 = High(state.seed);
  for (int round = 0; round < kRounds; ++round) {
    const __m512i p0 = _mm512_maskz_mul_epu32(kLanes, c0, m0), p1 = _mm512_maskz_mul_epu32(kLanes, c2, m1);
    constexpr int kXor3 = 0x96;
    c0 = _mm512_ternarylogic_epi32(_mm512_maskz_srli_epi64(kLanes, p1, 32), c1, _mm512_set1_epi64(key0), kXor3);
    c1 = p1;
    c2 = _mm512_ternarylogic_epi32(_mm512_maskz_srli_epi64(kLanes, p0, 32), c3, _mm512_set1_epi64(key1), kXor3);
    c3 = p0;
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  // Words 0|1|0|1.. and 2|3|2|3.. become 0|1|2|3 of blocks 0, 1, 4, 5 ... in two registers by 64-bit interleaving.
  constexpr __mmask16 kOdd = 0xaaaa;
  const __m512i words01 = _mm512_mask_blend_epi32(kOdd, c0, _mm512_maskz_slli_epi64(kLanes, c1, 32));
  const __m512i words23 = _mm512_mask_blend_epi32(kOdd, c2, _mm512_maskz_slli_epi64(kLanes, c3, 32));
  const __m512i blocks0123 = _mm512_permutex2var_epi64(words01, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), words23);
  const __m512i blocks4567 = _mm512_permutex2var_epi64(words01, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), words23);
  const __m512i limit = _mm512_set1_epi32(static_cast<int32_t>(Low(threshold)));
  return static_cast<uint32_t>(_mm512_cmplt_epu32_mask(blocks0123, limit)) |
         static_cast<uint32_t>(_mm512_cmplt_epu32_mask(blocks4567, limit)) << 16;
}

#elif defined(__aarch64__)

/// Bits of the 16 elements of blocks [block, block + 4): word w of the four blocks is a vector, and a product's low and
/// high halves are unzipped out of two.
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
  // Word w of block i is bit 4 i + w.
  const uint32x4_t limit = vdupq_n_u32(threshold);
  const uint32x4_t block_bit = {1, 1u << 4, 1u << 8, 1u << 12};
  const auto kept = [&](uint32x4_t words, int w) {
    return vandq_u32(vcltq_u32(words, limit), vshlq_u32(block_bit, vdupq_n_s32(w)));
  };
  return vaddvq_u32(vorrq_u32(vorrq_u32(kept(c0, 0), kept(c1, 1)), vorrq_u32(kept(c2, 2), kept(c3, 3))));
}

uint32_t KeepWordNeon(const PhiloxState& state, uint64_t threshold, uint64_t block) {
  const uint32_t limit = Low(threshold);
  return KeepHalfNeon(state, limit, block) | KeepHalfNeon(state, limit, block + 4) << 16;
}

#endif

KeepWord KeepWordOf(Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512)) return KeepWordAvx512;
  if (Includes(isa, Isa::kAvx2)) return KeepWordAvx2;
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeon)) return KeepWordNeon;
#else
  static_cast<void>(isa);
#endif
  return KeepWordPortable;
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
  // Exact: a float times a power of two.
  return static_cast<uint64_t>(std::floor(static_cast<double>(keep_prob) * static_cast<double>(kAll)));
}

void FillKeepBits(const PhiloxState& state, uint64_t threshold, uint64_t first, int64_t bits, std::span<uint32_t> words,
                  Isa isa) {
  if (bits <= 0) return;
  const size_t count = static_cast<size_t>(CeilDiv(bits, 32));
  assert(words.size() >= count);
  const uint32_t tail = bits % 32 == 0 ? ~0u : (1u << bits % 32) - 1;

  if (threshold >= kAll) {  // does not fit the 32-bit comparisons below
    std::fill_n(words.begin(), count, ~0u);
  } else {
    const KeepWord keep_word = KeepWordOf(isa);
    const unsigned shift = first % 4;
    uint64_t block = first / 4;
    uint32_t bits_now = keep_word(state, threshold, block);
    for (size_t i = 0; i < count; ++i) {
      block += 8;
      if (shift == 0) {
        words[i] = bits_now;
        if (i + 1 < count) bits_now = keep_word(state, threshold, block);
      } else {
        const uint32_t bits_next = keep_word(state, threshold, block);
        words[i] = bits_now >> shift | bits_next << (32 - shift);
        bits_now = bits_next;
      }
    }
  }
  words[count - 1] &= tail;
}

}  // namespace fa::core
