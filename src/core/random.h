#ifndef FA_CORE_RANDOM_H_
#define FA_CORE_RANDOM_H_

#include <array>
#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/options.h"

namespace fa::core {

/// Returns the four words that the generator Philox4x32-10 (Salmon et al. 2011) gives for a counter under a key.
[[nodiscard]] std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                                 const std::array<uint32_t, 2>& key);

/// Returns the random word that decides whether dropout keeps the element with flat index `index`. PhiloxState defines
/// the word.
[[nodiscard]] uint32_t PhiloxWord(const PhiloxState& state, uint64_t index);

/// Returns the threshold floor(keep_prob * 2^32), in [0, 2^32]. An element is kept if its word is below the threshold.
[[nodiscard]] uint64_t KeepThreshold(float keep_prob);

/// Sets words[i] to the keep bits of the 32 elements in the Philox blocks [blocks[i], blocks[i] + 8), LSB first.
void DrawKeepWords(const PhiloxState& state, uint64_t threshold, std::span<const uint64_t> blocks, uint32_t* words,
                   Isa isa);

/// Writes the keep bits of the flat elements [first, first + bits), LSB first, into ceil(bits / 32) words. The unused
/// bits of the last word are 0. `isa` affects only the speed, never the bits.
void FillKeepBits(const PhiloxState& state, uint64_t threshold, uint64_t first, int64_t bits, std::span<uint32_t> words,
                  Isa isa);

}  // namespace fa::core

#endif  // FA_CORE_RANDOM_H_
