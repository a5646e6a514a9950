#ifndef FA_CORE_INTEGER_H_
#define FA_CORE_INTEGER_H_

#include <cstdint>

namespace fa::core {

// These functions are always inlined, since kernels of every instruction-set level use them. Otherwise the linker might
// keep a copy that was compiled for a level that this CPU lacks (scripts/check_isa_symbols.sh).

/// Returns the quotient a / b, rounded up, where a >= 0 and b > 0.
[[nodiscard, gnu::always_inline]] constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Returns the least multiple of `step` that is at least x, where x >= 0.
[[nodiscard, gnu::always_inline]] constexpr int64_t RoundUp(int64_t x, int64_t step) { return CeilDiv(x, step) * step; }

}  // namespace fa::core

#endif  // FA_CORE_INTEGER_H_
