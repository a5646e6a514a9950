#include "reference/philox.h"

#include <cmath>

namespace reference {
namespace {

uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {High(p1) ^ counter[1] ^ key[0], Low(p1), High(p0) ^ counter[3] ^ key[1], Low(p0)};
    key[0] += 0x9E3779B9;  // this constant is derived from the golden ratio
    key[1] += 0xBB67AE85;  // this constant is derived from sqrt(3) - 1
  }
  return counter;
}

bool PhiloxKeeps(uint64_t seed, uint64_t offset, double keep_prob, uint64_t flat) {
  if (keep_prob == 1) return true;
  const uint64_t block = flat / 4;
  const auto words = Philox4x32({Low(block), High(block), Low(offset), High(offset)}, {Low(seed), High(seed)});
  return words[flat % 4] < std::floor(std::ldexp(keep_prob, 32));
}

}  // namespace reference
