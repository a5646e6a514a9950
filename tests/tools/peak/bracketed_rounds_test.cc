#include "peak/bracketed_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace fa::bench {
namespace {

using ::testing::HasSubstr;

constexpr double kWork = 100;  // the work of one call

constexpr size_t kFirstRates = 20;

/// Returns kFirstRates - 1 rates of the value `first`, followed by `rates`.
std::vector<double> After(double first, const std::vector<double>& rates) {
  std::vector<double> all(kFirstRates - 1, first);
  all.insert(all.end(), rates.begin(), rates.end());
  return all;
}

/// Returns the timing of rounds that take these seconds per call.
/// @param around  the rates before, between and after the rounds
/// @param first  the value of every earlier rate
BracketedTiming TimingOf(const std::vector<double>& seconds, const std::vector<double>& around, double first = 80) {
  const std::vector<double> rates = After(first, around);
  size_t next = 0;
  BracketedRounds rounds({{.per_call = kWork, .rate = [&](double) { return rates.at(next++); }}});
  for (const double each : seconds) EXPECT_EQ(rounds.Time([each] { return each; }), each);
  EXPECT_EQ(next, rates.size()) << "a rate is measured once between two rounds";
  return rounds.Timing();
}

TEST(BracketedRounds, AQuietRoundIsComparedWithTheHigherRateAroundIt) {
  const BracketedTiming timing = TimingOf({2}, {99, 100});
  EXPECT_EQ(timing.best, 2);
  EXPECT_EQ(timing.compared[0].rate, 100);
  EXPECT_EQ(timing.compared[0].fraction, 0.5);
  EXPECT_EQ(timing.quiet, 1);
  EXPECT_EQ(timing.Doubt(), "");
}

TEST(BracketedRounds, ARoundWhoseRatesDifferIsBusy) {
  // The second round is the fastest, but the machine's rate changed during it.
  const BracketedTiming timing = TimingOf({2, 1.5, 4, 3}, {100, 100, 80, 100, 98});
  EXPECT_EQ(timing.rounds, 4);
  EXPECT_EQ(timing.quiet, 2);
  EXPECT_EQ(timing.best, 2);
  EXPECT_EQ(timing.median, 3);
  EXPECT_EQ(timing.busy, 4) << "of 1.5 and 4";
  EXPECT_EQ(timing.compared[0].fraction, 0.5);
}

TEST(BracketedRounds, ARoundFarBelowTheFastestRateIsBusy) {
  const BracketedTiming timing = TimingOf({2, 4, 3}, {100, 100, 60, 60});
  EXPECT_EQ(timing.quiet, 1);
  EXPECT_EQ(timing.compared[0].fraction, 0.5) << "and not 3 s at a rate of 60: 0.56";
}

TEST(BracketedRounds, ARoundFarBelowARateThatWasMeasuredBeforeIsBusy) {
  const BracketedTiming timing = TimingOf({4}, {60, 60}, /*first=*/100);
  EXPECT_EQ(timing.quiet, 0);
  EXPECT_FALSE(timing.compared[0].fraction);
}

TEST(BracketedRounds, ACallIsNeverFasterThanTheRateThatItIsComparedWith) {
  // Something disturbed both rates around the first round, but not the round itself.
  const BracketedTiming timing = TimingOf({1.2, 1.25}, {82, 82, 82});
  EXPECT_EQ(timing.quiet, 1);
  EXPECT_EQ(timing.above, 1);
  EXPECT_EQ(timing.best, 1.25);
  EXPECT_LE(timing.compared[0].fraction.value(), 1);
}

TEST(BracketedRounds, CallsThatAreAlwaysFasterThanTheRateHaveNoFraction) {
  const BracketedTiming timing = TimingOf({1, 0.9}, {82, 82, 82});
  EXPECT_EQ(timing.quiet, 0);
  EXPECT_EQ(timing.above, 2);
  EXPECT_EQ(timing.best, 0.9);
  EXPECT_FALSE(timing.compared[0].fraction);
  EXPECT_THAT(timing.Doubt(), HasSubstr("faster than the rate"));
}

TEST(BracketedRounds, AReferenceThatIsNoLimitMayBeBeaten) {
  BracketedRounds rounds({{.per_call = kWork, .rate = [](double) { return 80.0; }, .is_limit = false}});
  (void)rounds.Time([] { return 1.0; });
  const BracketedTiming timing = rounds.Timing();
  EXPECT_EQ(timing.quiet, 1);
  EXPECT_EQ(timing.above, 0);
  EXPECT_EQ(timing.compared[0].fraction, 1.25);
}

TEST(BracketedRounds, WithoutAQuietRoundThereIsNoFraction) {
  const BracketedTiming timing = TimingOf({2, 3}, {100, 90, 100});
  EXPECT_EQ(timing.best, 2);
  EXPECT_FALSE(timing.compared[0].fraction);
  EXPECT_EQ(timing.Doubt(), "no round was quiet");
}

TEST(BracketedRounds, EveryReferenceHasToBeQuiet) {
  const std::vector<double> units = After(100, {100, 100, 100, 80}), reads = After(50, {50, 50, 30, 30});
  size_t unit = 0, read = 0;
  BracketedRounds rounds({{.per_call = kWork, .rate = [&](double) { return units.at(unit++); }},
                          {.per_call = 60, .rate = [&](double) { return reads.at(read++); }}});
  for (const double seconds : {2.0, 1.5, 1.6}) (void)rounds.Time([seconds] { return seconds; });
  const BracketedTiming timing = rounds.Timing();
  EXPECT_EQ(timing.quiet, 1);
  EXPECT_EQ(timing.compared[0].fraction, 0.5);
  EXPECT_EQ(timing.compared[1].fraction, 0.6);
}

TEST(BracketedRounds, OtherProgramsMakeATimingDoubtful) {
  BracketedTiming timing = TimingOf({2}, {100, 100});
  timing.foreign_cpus = 0.09;
  EXPECT_EQ(timing.Doubt(), "");
  timing.foreign_cpus = 1.873;
  EXPECT_EQ(timing.Doubt(), "other programs used 1.87 CPUs meanwhile");
}

TEST(BracketedRounds, ThreeRoundsAtLeast) {
  int calls = 0;
  const BracketedTiming timing = TimeInRounds(
      {.seconds = 1e-9, .call = [&] { ++calls; }, .references = {{.per_call = 0, .rate = [](double) { return 1.0; }}}});
  EXPECT_EQ(timing.rounds, 3);
  EXPECT_GE(calls, 3);
  EXPECT_GT(timing.best, 0);
}

}  // namespace
}  // namespace fa::bench
