#ifndef FA_TESTS_SUPPORT_SANITIZER_H_
#define FA_TESTS_SUPPORT_SANITIZER_H_

#include <iterator>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fa/tensor.h"

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace fa::test {

/// Returns whether the program runs under AddressSanitizer or ThreadSanitizer, which start their runtimes by these
/// functions. A sanitizer makes a test five to ten times as slow, and it watches accesses, not values. So tests try
/// fewer combinations under a sanitizer, but still every feature and every type. The answer comes at run time, because
/// libraries of the tests are compiled without the sanitizer that watches libfa.
[[nodiscard]] inline bool Sanitized() { return __asan_init != nullptr || __tsan_init != nullptr; }

/// Returns all features with all types. Under a sanitizer each feature has one type, and the types take turns.
template <typename Features>
[[nodiscard]] auto WithTypes(const Features& features) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  std::vector<std::tuple<DType, std::decay_t<decltype(*std::begin(features))>>> pairs;
  size_t turn = 0;
  for (const auto& feature : features) {
    for (const DType dtype : kDTypes) {
      if (!Sanitized() || dtype == kDTypes[turn % std::size(kDTypes)]) pairs.emplace_back(dtype, feature);
    }
    ++turn;
  }
  return pairs;
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SANITIZER_H_
