#ifndef FA_TESTS_SUPPORT_RANDOM_FORWARD_CASE_H_
#define FA_TESTS_SUPPORT_RANDOM_FORWARD_CASE_H_

#include "support/cases/forward_case.h"

namespace fa::test {

/// Returns a valid case that depends on the seed alone. Layout, type, sizes, mask, bias, dropout, strides and address
/// are random. A case has at most a few million products.
[[nodiscard]] ForwardCase RandomForwardCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANDOM_FORWARD_CASE_H_
