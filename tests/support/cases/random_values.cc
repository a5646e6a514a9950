#include "support/cases/random_values.h"

#include <cmath>

namespace fa::test {
namespace {

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t RandomBits(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  uint64_t state = Mix(seed * 256 + static_cast<uint64_t>(tag));
  for (const int64_t index : place) state = Mix(state ^ static_cast<uint64_t>(index));
  return state;
}

double RandomNormal(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  const uint64_t bits = RandomBits(seed, tag, place);
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>(bits >> (16 * part) & 0xFFFF) / 65536;
  return (sum - 2) * std::sqrt(3.0);  // a uniform has variance 1/12
}

double RandomUniform(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  return std::ldexp(static_cast<double>(RandomBits(seed, tag, place) >> 11), -53);
}

}  // namespace fa::test
