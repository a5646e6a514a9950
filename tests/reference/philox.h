#ifndef FA_TESTS_REFERENCE_PHILOX_H_
#define FA_TESTS_REFERENCE_PHILOX_H_

#include <array>
#include <cstdint>

namespace reference {

/// Computes Philox4x32 with 10 rounds, written from the paper (Salmon et al., "Parallel random numbers: as easy as 1,
/// 2, 3", SC 2011).
[[nodiscard]] std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Returns whether dropout with (seed, offset) keeps the pair that has the flat index `flat`.
[[nodiscard]] bool PhiloxKeeps(uint64_t seed, uint64_t offset, double keep_prob, uint64_t flat);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_PHILOX_H_
