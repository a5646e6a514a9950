#ifndef FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_
#define FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_

#include <cstdint>

#include "support/cases/backward_case.h"

namespace fa::test {

/// Returns a valid case that depends on the seed alone, with the forward case of that seed. The backward's own tensors
/// may have any strides and address.
[[nodiscard]] BackwardCase RandomBackwardCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_
