#ifndef FA_CORE_SATURATING_H_
#define FA_CORE_SATURATING_H_

#include <cstdint>
#include <limits>

namespace fa::core {

// These functions compute sizes, which are not negative. A result beyond 63 bits becomes the greatest value, which
// every limit refuses. So callers compute a size completely, and compare it with its limit once.

inline constexpr int64_t kSaturated = std::numeric_limits<int64_t>::max();

[[nodiscard]] constexpr int64_t SaturatedSum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

[[nodiscard]] constexpr int64_t SaturatedProduct(int64_t size) { return size; }
template <typename... Sizes>
[[nodiscard]] constexpr int64_t SaturatedProduct(int64_t first, int64_t second, Sizes... rest) {
  int64_t product = 0;
  // Even if the product is too large so far, a later factor 0 makes it 0.
  if (__builtin_mul_overflow(first, second, &product)) product = kSaturated;
  return SaturatedProduct(product, static_cast<int64_t>(rest)...);
}

/// Returns the least multiple of `step` that is not below `size`. If that multiple needs more than 63 bits, the result
/// is the greatest value.
[[nodiscard]] constexpr int64_t SaturatedRoundUp(int64_t size, int64_t step) {
  return SaturatedSum(size, step - 1) / step * step;
}

/// Returns value * part / whole, rounded down, for part <= whole. No value is too large for it.
[[nodiscard]] constexpr int64_t ShareOf(int64_t value, int64_t part, int64_t whole) {
  __extension__ using Wide = __int128;
  return static_cast<int64_t>(Wide{value} * part / whole);
}

}  // namespace fa::core

#endif  // FA_CORE_SATURATING_H_
