// Tests random calls that mix all options, on every instruction-set level. FA_TEST_CASES is the number of cases, and
// FA_TEST_SEED the first seed.
#include <gtest/gtest.h>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int kShards = 8;

class ForwardRandom : public ::testing::TestWithParam<int> {};

TEST_P(ForwardRandom, MatchesTheReference) {
  const int cases = RandomCases() / kShards;
  const int first = FromEnvironment("FA_TEST_SEED", 1) + GetParam() * cases;
  for (int seed = first; seed < first + cases; ++seed) {
    EXPECT_TRUE(RunsLikeTheReference(RandomForwardCase(static_cast<uint64_t>(seed)), 1 + seed % 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, ForwardRandom, ::testing::Range(0, kShards));

}  // namespace
}  // namespace fa::test
