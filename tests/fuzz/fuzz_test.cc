// Random calls of every operator against guard pages (fuzz_driver.h).
#include <gtest/gtest.h>

#include "fuzz/fuzz_driver.h"

namespace fa::test {
namespace {

constexpr int kCases = 40;

using Fuzzer = EveryOperator;

TEST_P(Fuzzer, FindsNothing) { Fuzz(GetParam(), kCases); }

INSTANTIATE_TEST_SUITE_P(All, Fuzzer, ::testing::ValuesIn(kFamilies), FamilyName);

}  // namespace
}  // namespace fa::test
