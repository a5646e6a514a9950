#ifndef FA_TESTS_FUZZ_FAMILIES_H_
#define FA_TESTS_FUZZ_FAMILIES_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "fa/operators.h"
#include "fuzz/calls/fuzz_call.h"

namespace fa::test {

/// Declares RandomForwardCall and so on. Each function returns a valid call that depends on the seed alone.
#define FA_DECLARE(name, function, args, options, text) \
  [[nodiscard]] std::unique_ptr<FuzzCall> Random##name##Call(uint64_t seed);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE
[[nodiscard]] std::unique_ptr<FuzzCall> RandomInt8PromptCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomInt8DecodeCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomDropoutMaskCall(uint64_t seed);

/// An operator and the function that makes its random calls.
struct Family {
  const char* name;
  std::unique_ptr<FuzzCall> (*make)(uint64_t seed);
};

/// All families: one per operator, two of int8 calls, and dropout masks.
inline constexpr Family kFamilies[] = {
#define FA_FAMILY(name, function, args, options, text) {#name, Random##name##Call},
    FA_OPERATORS(FA_FAMILY)
#undef FA_FAMILY
        {"PromptInt8", RandomInt8PromptCall},
    {"DecodeInt8", RandomInt8DecodeCall},
    {"DropoutMask", RandomDropoutMaskCall},
};

/// The number of families whose operators have plans. These families come first in kFamilies.
inline constexpr size_t kFamiliesWithPlans = std::size(kFamilies) - 1;

/// A test that runs for every family.
class EveryOperator : public ::testing::TestWithParam<Family> {};
inline std::string FamilyName(const ::testing::TestParamInfo<Family>& info) { return info.param.name; }

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FAMILIES_H_
