#ifndef FA_PEAK_RANDOM_OPERANDS_H_
#define FA_PEAK_RANDOM_OPERANDS_H_

#include <bit>
#include <cstdint>
#include <random>
#include <span>

/// Numbers that peak loops multiply. The numbers are random, because a unit that multiplies zeros, or the same number
/// again and again, may draw less power. The clock may then be higher than with a caller's numbers. Sums of products of
/// the numbers stay finite, however many iterations there are.
namespace fa::bench {

inline void FillNormal(std::span<float> numbers) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& number : numbers) number = normal(random);
}
/// Fills `numbers` with bf16 numbers: random normal numbers, rounded towards 0.
inline void FillNormalBf16(std::span<uint16_t> numbers) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (uint16_t& number : numbers) number = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
}
inline void FillBytes(std::span<uint8_t> bytes) {
  std::mt19937 random(3);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
}

}  // namespace fa::bench

#endif  // FA_PEAK_RANDOM_OPERANDS_H_
