#ifndef FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_
#define FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_

#include <cstdint>

#include "support/cases/backward_case.h"

namespace fa::test {

/// A valid case that depends on the seed alone: the forward case of that seed, with any form of the backward's own
/// tensors.
[[nodiscard]] BackwardCase RandomBackwardCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANDOM_BACKWARD_CASE_H_
