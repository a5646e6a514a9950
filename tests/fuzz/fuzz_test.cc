// Runs random calls of every operator on tensors between guard pages (fuzz_driver.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fuzz/fuzz_driver.h"

namespace fa::test {
namespace {

constexpr int kCases = 40;

using Fuzzer = EveryOperator;

TEST_P(Fuzzer, FindsNothing) { Fuzz(GetParam(), kCases); }

TEST(FuzzerOutput, SaysItsSeedAndCallsWhenItFindsNothing) {
  testing::internal::CaptureStdout();
  Fuzz(kFamilies[0], 1);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              ::testing::MatchesRegex("FA_FUZZ_SEED=[0-9]+ FA_FUZZ_CASES=[0-9]+: Forward, [0-9]+ mistakes refused\n"));
}

INSTANTIATE_TEST_SUITE_P(All, Fuzzer, ::testing::ValuesIn(kFamilies), FamilyName);

}  // namespace
}  // namespace fa::test
