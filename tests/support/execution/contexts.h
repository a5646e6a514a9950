#ifndef FA_TESTS_SUPPORT_CONTEXTS_H_
#define FA_TESTS_SUPPORT_CONTEXTS_H_

#include <string>
#include <vector>

#include "fa/context.h"

namespace fa::test {

/// Returns every level that this CPU has. A sanitizer watches accesses, not values. So under a sanitizer kAvx512Vnni is
/// left out if the CPU has kAvx512Bf16 too. kAvx512Vnni has the kernels of kAvx512, and the int8 kernels of kAvx512Bf16
/// (tests/core/kernels/int8_kernels_test.cc).
[[nodiscard]] std::vector<Isa> IsaLevels();
/// Returns one context for each (level, threads), which is made on first use.
[[nodiscard]] Context* ContextOf(Isa isa, int threads = 2);
/// Returns a test's name in a suite parametrised by level.
[[nodiscard]] std::string IsaName(Isa isa);

/// Returns the integer in the environment variable, or `otherwise` if the variable is not set.
[[nodiscard]] int FromEnvironment(const char* name, int otherwise);
/// Returns the number of random cases with which a property is tested on each level. It is FA_TEST_CASES, by default
/// `usual`, or a fifth of `usual` under a sanitizer.
[[nodiscard]] int RandomCases(int usual = 400);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CONTEXTS_H_
