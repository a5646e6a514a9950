#include "peak/team.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace fa::bench {
namespace {

TEST(Team, AllThreadsWorkInEveryRoundOfEveryMeasurement) {
  constexpr int kThreads = 3;
  Team team(kThreads);
  EXPECT_EQ(team.threads(), kThreads);
  for (int measurement = 0; measurement < 20; ++measurement) {
    std::array<int, kThreads> rounds{};
    const double shortest = team.ShortestRound(1e-4, [&](int thread) { ++rounds[static_cast<size_t>(thread)]; });
    EXPECT_GT(shortest, 0);
    EXPECT_GE(rounds[0], 1);
    EXPECT_EQ(rounds[1], rounds[0]);
    EXPECT_EQ(rounds[2], rounds[0]);
  }
}

TEST(Team, ThatNeverWorksEnds) { const Team team(3); }

}  // namespace
}  // namespace fa::bench
