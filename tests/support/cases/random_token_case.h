#ifndef FA_TESTS_SUPPORT_CASES_RANDOM_TOKEN_CASE_H_
#define FA_TESTS_SUPPORT_CASES_RANDOM_TOKEN_CASE_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/cases/token/token_case.h"

namespace fa::test {

/// Makes random choices. Each depends on the seed and on the number of earlier choices.
class RandomChoices {
 public:
  explicit RandomChoices(uint64_t seed) : seed_(seed) {}
  [[nodiscard]] int64_t Pick(int64_t low, int64_t high) {
    return low +
           static_cast<int64_t>(RandomBits(seed_, Tag::kChoice, {-2, ++made_}) % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  [[nodiscard]] T OneOf(std::initializer_list<T> values) {
    return values.begin()[Pick(0, static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  uint64_t seed_;
  int64_t made_ = 0;
};

/// Returns whether operators would take the prefix sums of `lengths` for lengths. They do so if the prefix sums add up
/// to the number of rows of the tensor, which has `spare` rows after the last sequence.
[[nodiscard]] bool LooksLikeLengths(const std::vector<int64_t>& lengths, int64_t spare);

/// Draws sequences, lists, types and addresses. Keys may lie in pages only if `may_be_paged`.
[[nodiscard]] TokenCase RandomTokenCase(uint64_t seed, bool may_be_paged, RandomChoices* choices);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CASES_RANDOM_TOKEN_CASE_H_
