#include "support/cases/random_values.h"

#include <cmath>

namespace fa::test {
namespace {

/// Returns the output function of SplitMix64 (Steele et al., OOPSLA 2014) at x.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

double NormalOf(uint64_t bits) {
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>(bits >> (16 * part) & 0xFFFF) / 65536;
  return (sum - 2) * std::sqrt(3.0);  // times sqrt(12 / 4), because a sum of four uniform numbers has variance 4/12
}

double UniformOf(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

uint64_t RandomBits(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  uint64_t state = Mix(seed * 256 + static_cast<uint64_t>(tag));
  for (const int64_t index : place) state = Mix(state ^ static_cast<uint64_t>(index));
  return state;
}

double RandomNormal(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  return NormalOf(RandomBits(seed, tag, place));
}

double RandomUniform(uint64_t seed, Tag tag, std::initializer_list<int64_t> place) {
  return UniformOf(RandomBits(seed, tag, place));
}

RandomLine::RandomLine(uint64_t seed, Tag tag, std::initializer_list<int64_t> line)
    : state_(RandomBits(seed, tag, line)) {}

double RandomLine::Normal(int64_t last) const { return NormalOf(Mix(state_ ^ static_cast<uint64_t>(last))); }

double RandomLine::Uniform(int64_t last) const { return UniformOf(Mix(state_ ^ static_cast<uint64_t>(last))); }

}  // namespace fa::test
