#ifndef FA_TESTS_SUPPORT_POISON_H_
#define FA_TESTS_SUPPORT_POISON_H_

#include "support/cases/forward_case.h"

namespace fa::test {

/// Overwrites with `poison` what no kept pair reads: keys, values and biases that every query masks, and queries that
/// keep no key.
/// @return the number of poisoned elements
int64_t PoisonUnseen(double poison, reference::Problem* problem);

/// Returns the largest finite number of the type. Products with it overflow.
[[nodiscard]] double LargestFinite(DType dtype);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_POISON_H_
