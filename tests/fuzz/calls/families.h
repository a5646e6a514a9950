#ifndef FA_TESTS_FUZZ_FAMILIES_H_
#define FA_TESTS_FUZZ_FAMILIES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fa/operators.h"
#include "fuzz/calls/fuzz_call.h"

namespace fa::test {

/// Valid calls that depend on the seed alone.
[[nodiscard]] std::unique_ptr<FuzzCall> RandomForwardCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomBackwardCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomPromptCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomInt8PromptCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomDecodeCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomInt8DecodeCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomSparseForwardCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomSparseBackwardCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomIndexerCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomIndexerGradCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomIndexerLseCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomSparseLossCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomDenseLossCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomMergeCall(uint64_t seed);
[[nodiscard]] std::unique_ptr<FuzzCall> RandomDropoutMaskCall(uint64_t seed);

/// An operator and its random calls.
struct Family {
  const char* name;
  std::unique_ptr<FuzzCall> (*make)(uint64_t seed);
};

/// Every operator.
inline constexpr Family kFamilies[] = {
    {"Forward", RandomForwardCall},
    {"Backward", RandomBackwardCall},
    {"Prompt", RandomPromptCall},
    {"PromptInt8", RandomInt8PromptCall},
    {"Decode", RandomDecodeCall},
    {"DecodeInt8", RandomInt8DecodeCall},
    {"SparseForward", RandomSparseForwardCall},
    {"SparseBackward", RandomSparseBackwardCall},
    {"Indexer", RandomIndexerCall},
    {"IndexerBackward", RandomIndexerGradCall},
    {"DenseIndexerLse", RandomIndexerLseCall},
    {"IndexerLoss", RandomSparseLossCall},
    {"DenseIndexerLoss", RandomDenseLossCall},
    {"Merge", RandomMergeCall},
    {"DropoutMask", RandomDropoutMaskCall},
};

constexpr bool HasFamily(std::string_view name) {
  return std::any_of(std::begin(kFamilies), std::end(kFamilies), [&](const Family& of) { return of.name == name; });
}
#define FA_HAS_FAMILY(name, function, args, options, text) static_assert(HasFamily(#name));
FA_OPERATORS(FA_HAS_FAMILY)
#undef FA_HAS_FAMILY

/// The number of families that have plans; they come first.
inline constexpr size_t kFamiliesWithPlans = std::size(kFamilies) - 1;

/// A test that runs for every family.
class EveryOperator : public ::testing::TestWithParam<Family> {};
inline std::string FamilyName(const ::testing::TestParamInfo<Family>& info) { return info.param.name; }

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FAMILIES_H_
