#ifndef FA_TESTS_SUPPORT_SANITIZER_H_
#define FA_TESTS_SUPPORT_SANITIZER_H_

#include <iterator>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fa/tensor.h"

namespace fa::test {

/// A sanitizer makes a test five to ten times as slow. It watches how memory is reached, not values, so tests that try
/// combinations try fewer of them; every feature and every type still comes up.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// All features with all types; under a sanitizer each feature with one type, the types in turn.
template <typename Features>
[[nodiscard]] auto WithTypes(const Features& features) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  std::vector<std::tuple<DType, std::decay_t<decltype(*std::begin(features))>>> pairs;
  size_t turn = 0;
  for (const auto& feature : features) {
    for (const DType dtype : kDTypes) {
      if (!kSanitized || dtype == kDTypes[turn % std::size(kDTypes)]) pairs.emplace_back(dtype, feature);
    }
    ++turn;
  }
  return pairs;
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SANITIZER_H_
