#ifndef FA_TESTS_SUPPORT_POISON_H_
#define FA_TESTS_SUPPORT_POISON_H_

#include "support/cases/forward_case.h"

namespace fa::test {

/// Puts `poison` where no query may look. These are keys, values and biases that every row masks, and queries without
/// keys.
/// @return the number of poisoned elements
int64_t PoisonUnseen(double poison, reference::Problem* problem);

/// Returns the largest finite number of the type. Products with it overflow.
[[nodiscard]] double LargestFinite(DType dtype);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_POISON_H_
