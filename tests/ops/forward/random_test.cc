// Random calls over all options at once. FA_TEST_CASES cases a level, from seed FA_TEST_SEED on.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/contexts.h"
#include "support/random_forward_case.h"

namespace fa::test {
namespace {

constexpr int kShards = 8;

class ForwardRandom : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

TEST_P(ForwardRandom, MatchesTheReference) {
  const auto [isa, shard] = GetParam();
  const int cases = RandomCases() / kShards;
  const int first = FromEnvironment("FA_TEST_SEED", 1) + shard * cases;
  for (int seed = first; seed < first + cases; ++seed) {
    EXPECT_TRUE(RunsLikeTheReference(RandomForwardCase(static_cast<uint64_t>(seed)), ContextOf(isa, 1 + seed % 3)));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardRandom,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Range(0, kShards)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
