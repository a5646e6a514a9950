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

/// Returns whether the program runs under AddressSanitizer or ThreadSanitizer, whose runtimes have the functions
/// __asan_init and __tsan_init. Tests then try fewer combinations, because they are five to ten times as slow. They
/// still try every feature and every type. The check is at run time, because the tests' helpers are compiled without
/// sanitizers.
[[nodiscard]] inline bool Sanitized() { return __asan_init != nullptr || __tsan_init != nullptr; }

/// Returns every feature with every type. Under a sanitizer each feature has one type, and the types alternate.
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
