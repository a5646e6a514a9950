#ifndef FA_TESTS_SUPPORT_CONTEXTS_H_
#define FA_TESTS_SUPPORT_CONTEXTS_H_

#include <string>
#include <vector>

#include "fa/context.h"

namespace fa::test {

/// Returns every level that this CPU has. Under a sanitizer, kAvx512Vnni is left out if the CPU has kAvx512Bf16.
/// kAvx512Vnni has the kernels of kAvx512, and the int8 kernels of kAvx512Bf16
/// (tests/core/kernels/int8_kernels_test.cc).
[[nodiscard]] std::vector<Isa> IsaLevels();
/// Returns the context for (level, threads), which the first call makes.
[[nodiscard]] Context* ContextOf(Isa isa, int threads = 2);
/// Returns the name of a level's test, for suites that have the level as parameter.
[[nodiscard]] std::string IsaName(Isa isa);

/// Returns the integer that the environment variable holds, or `otherwise` if it is not set.
[[nodiscard]] int FromEnvironment(const char* name, int otherwise);
/// Returns the number of random cases per level with which a test checks a property. This is FA_TEST_CASES if it is
/// set. Otherwise it is `usual`, or a fifth of that under a sanitizer.
[[nodiscard]] int RandomCases(int usual = 400);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CONTEXTS_H_
