#ifndef FA_TESTS_SUPPORT_CONTEXTS_H_
#define FA_TESTS_SUPPORT_CONTEXTS_H_

#include <string>
#include <vector>

#include "fa/context.h"

namespace fa::test {

/// Every level that this CPU has. A sanitizer watches accesses, not values. So under one, kAvx512Vnni is left out where
/// kAvx512Bf16 is there too. Its kernels are those of kAvx512, and its int8 kernels those of kAvx512Bf16
/// (tests/core/kernels/int8_kernels_test.cc).
[[nodiscard]] std::vector<Isa> IsaLevels();
/// One context for each (level, threads), made on first use.
[[nodiscard]] Context* ContextOf(Isa isa, int threads = 2);
/// A test's name in a suite parametrised by level.
[[nodiscard]] std::string IsaName(Isa isa);

/// The integer in the environment variable, or `otherwise` if it is not set.
[[nodiscard]] int FromEnvironment(const char* name, int otherwise);
/// The number of random cases with which a property is tested on each level: FA_TEST_CASES, by default `usual`, or a
/// fifth of it under a sanitizer.
[[nodiscard]] int RandomCases(int usual = 400);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CONTEXTS_H_
