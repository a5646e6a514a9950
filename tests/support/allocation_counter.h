#ifndef FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
#define FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace fa::test {

/// Calls of operator new since the start of the program. A binary that links allocation_counter.cc has every operator
/// new replaced, those of the libraries it loads too.
[[nodiscard]] int64_t Allocations();

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_ALLOCATION_COUNTER_H_
