// Sizes for which no plan can exist are refused by arithmetic, before a plan is made.
#include "tiling/plan_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "support/each_case.h"
#include "support/hang_alarm.h"
#include "tests/tiling/sample_problems.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/backward/make_backward_plan.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::tiling {
namespace {

using test::Axis;
using test::ForEachCase;
using test::FromTo;
using test::HangAlarm;
using ::testing::HasSubstr;

constexpr int64_t Power(int exponent) { return int64_t{1} << exponent; }

template <typename Make>
std::string RefusalBy(const Make& make) {
  const HangAlarm alarm;
  try {
    static_cast<void>(make());
  } catch (const PlanTooLarge& error) {
    return error.what();
  }
  return "not refused";
}

std::string RefusedBackward(const Sizes& sizes, const Machine& machine) {
  return RefusalBy([&] { return MakeBackwardPlan(MakeProblem(sizes), machine); });
}

std::string RefusedForward(const Sizes& sizes, const Machine& machine) {
  return RefusalBy([&] { return MakeForwardPlan(MakeProblem(sizes), machine); });
}

// Counts the tiles column by column, as the comment of CountPairTiles defines them.
double CountOneByOne(const RowRule& rule, const BackwardCut& cut) {
  const auto groups = [&](Interval rows) {
    return rows.empty() ? 0 : (rows.end + cut.block_q - 1) / cut.block_q - rows.begin / cut.block_q;
  };
  int64_t tiles = 0;
  for (int64_t key = 0; key < rule.sk; key += cut.block_k) {
    const Interval rows = rule.RowsOfKeys({key, key + cut.block_k});
    tiles += rows.empty() ? 1 : cut.group * groups(rows);
  }
  const int64_t with_keys = groups(rule.RowsOfKeys({0, rule.sk}));
  return static_cast<double>(tiles + cut.group * (groups({0, rule.sq}) - with_keys));
}

TEST(CountPairTiles, AgreesWithOneColumnAfterAnotherForAllSmallRules) {
  const BackwardCut cuts[] = {{.block_q = 1, .block_k = 1},
                              {.block_q = 2, .block_k = 3, .group = 3},
                              {.block_q = 3, .block_k = 2},
                              {.block_q = 4, .block_k = 4, .group = 2}};
  int64_t rules = 0;
  const auto check = [&](int64_t sq, int64_t sk, int64_t lo, int64_t hi) {
    const int64_t reach = sq + sk;
    if (std::max(std::abs(lo), std::abs(hi)) > reach) return;
    for (const int64_t prefix : {int64_t{0}, int64_t{1}, int64_t{5}, reach}) {
      if (prefix > 0 && lo != -reach) continue;  // a rule with a prefix has no lower bound
      const RowRule rule{.lo = lo, .hi = hi, .prefix = prefix, .sq = sq, .sk = sk};
      for (const BackwardCut& cut : cuts) {
        ASSERT_EQ(CountPairTiles(rule, cut), CountOneByOne(rule, cut))
            << "prefix " << prefix << " block_q " << cut.block_q << " block_k " << cut.block_k;
        ++rules;
      }
    }
  };
  ForEachCase(check, Axis{"sq", FromTo(0, 8)}, Axis{"sk", FromTo(0, 8)}, Axis{"lo", FromTo(-16, 16)},
              Axis{"hi", FromTo(-16, 16)});
  EXPECT_GT(rules, 100000);
}

TEST(CountPairTiles, AgreesWithTheTilesThatAreMadeOfListedRows) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto sq = static_cast<int64_t>(random() % 9), sk = static_cast<int64_t>(random() % 9);
    const RowRule rule = RandomListedRule(random, sq, sk);
    for (const BackwardCut& cut : {BackwardCut{.block_q = 1, .block_k = 1, .strip_rows = 1},
                                   BackwardCut{.block_q = 2, .block_k = 3, .strip_rows = 1, .group = 3},
                                   BackwardCut{.block_q = 4, .block_k = 2, .strip_rows = 2}}) {
      ASSERT_EQ(CountPairTiles(rule, cut), static_cast<double>(MakePairTiles(rule, cut).tiles.size()))
          << "round " << round << " sq " << sq << " sk " << sk << " block_q " << cut.block_q;
    }
  }
}

TEST(CountPairTiles, TakesNoTimeForAnyLength) {
  const HangAlarm alarm;
  const int64_t s = Power(58);
  const BackwardCut cut{.block_q = 128, .block_k = 128};
  const RowRule causal{.lo = -2 * s, .hi = 0, .prefix = 0, .sq = s, .sk = s};
  const double blocks = static_cast<double>(s) / 128;
  EXPECT_DOUBLE_EQ(CountPairTiles(causal, cut), blocks * (blocks + 1) / 2);
  const RowRule full{.lo = -2 * s, .hi = 2 * s, .prefix = 0, .sq = s, .sk = s};
  EXPECT_DOUBLE_EQ(CountPairTiles(full, cut), blocks * blocks);
}

TEST(PlanLimits, BackwardOfAnyLengthIsRefusedWithBothNumbers) {
  for (const int exponent : {38, 40, 58}) {
    const int64_t s = Power(exponent);
    EXPECT_EQ(RefusedBackward({.lengths = {{1, s}}}, MakeMachine(2)),
              "the plan: " + std::to_string(s / 128) + " tasks, want at most " + std::to_string(Power(30)));
    EXPECT_EQ(RefusedBackward({.lengths = {{s, 1}}}, MakeMachine(2)),
              "the plan: " + std::to_string(s / 128) + " tasks, want at most " + std::to_string(Power(30)));
    EXPECT_THAT(RefusedBackward({.lengths = {{s, s}}, .mask = Mask::Causal()}, MakeMachine(64, 2)),
                HasSubstr("want at most"));
  }
}

TEST(PlanLimits, BackwardIsRefusedForTheMemoryOfItsTasksAndOfOneSlot) {
  Machine machine = MakeMachine(2);
  machine.memory_bytes = int64_t{100} * kTaskBytes;
  EXPECT_EQ(RefusedBackward({.lengths = {{128 * 10, 128 * 10}}, .d = 1, .dv = 1}, machine), "not refused");
  EXPECT_EQ(RefusedBackward({.lengths = {{128 * 10, 128 * 11}}, .d = 1, .dv = 1}, machine),
            "the plan: 110 tasks, want at most 100");
  machine.memory_bytes = Power(20);
  EXPECT_EQ(RefusedBackward({.lengths = {{16, 8192}}, .d = 1024, .dv = 1024}, machine),
            "the plan: " + std::to_string((8192 + 16) * 2048 * 4) + " bytes of workspace, want at most 1048576");
}

TEST(PlanLimits, ForwardOfAnyLengthIsRefusedOrSmall) {
  for (const int exponent : {38, 50, 60}) {
    const int64_t s = Power(exponent);
    // The keys are cut into 32 parts, whose costs fit into 64 bits.
    const HangAlarm alarm;
    const ForwardPlan decode = MakeForwardPlan(
        MakeProblem({.lengths = {{1, s}}, .heads = 1, .heads_kv = 1, .d = 1, .dv = 1}), MakeMachine(32));
    ASSERT_EQ(decode.items.size(), 32U);
    for (const ForwardItem& item : decode.items) EXPECT_GT(item.cost, 0);
    EXPECT_GT(decode.efficiency, 0.9);

    EXPECT_EQ(RefusedForward({.lengths = {{s, 1}}}, MakeMachine(2)),
              "the plan: " + std::to_string(s / 128) + " tasks, want at most " + std::to_string(Power(30)));
    EXPECT_THAT(RefusedForward({.lengths = {{64, 64}}, .heads = s, .heads_kv = s}, MakeMachine(2)),
                HasSubstr(std::to_string(s) + " tasks, want at most"));
    EXPECT_THAT(RefusedForward({.lengths = {{s, 64}, {s, s}}, .heads = s, .heads_kv = s / 4}, MakeMachine(2)),
                HasSubstr("tasks, want at most"));
    EXPECT_THAT(RefusedBackward({.lengths = {{s, 64}, {s, s}}, .heads = s, .heads_kv = s / 4}, MakeMachine(2)),
                HasSubstr("tasks, want at most"));
  }
}

TEST(PlanLimits, ForwardIsRefusedForKeysThatCannotBePacked) {
  for (const int exponent : {44, 50}) {
    const Sizes sizes{.lengths = {{4096, Power(exponent)}}, .dense = false};
    EXPECT_EQ(RefusedForward(sizes, MakeMachine(4096)), "the plan: " + std::to_string(Power(exponent) * 128 * 4) +
                                                            " bytes of workspace, want at most " +
                                                            std::to_string(Power(47)));
  }
  Machine machine = MakeMachine(1);
  machine.memory_bytes = Power(60);
  EXPECT_EQ(
      RefusedForward({.lengths = {{4096, Power(46)}}, .d = 1, .dv = 1, .dense = false}, machine),
      "the plan: " + std::to_string(32 + 2 + Power(46) / 2048) + " tasks, want at most " + std::to_string(Power(30)));
}

TEST(PlanLimits, ForwardIsRefusedForTheStatesOfItsPartsBeforeItHasTasks) {
  // Each sequence is cut into 32 parts. The state of a part has 16 lanes of at least 64 floats.
  Machine machine = MakeMachine(2);
  const int64_t sequences = 4096;
  const Sizes sizes{.lengths = {sequences, {1, Power(31) - 1}}, .heads = 4, .heads_kv = 2, .d = 64, .dv = 64};
  const int64_t states = sequences * sizes.heads_kv * 32;
  machine.memory_bytes = states * 31 * 16 * 64 * 4 / 32 - 1;
  EXPECT_EQ(RefusedForward(sizes, machine), "the plan: " + std::to_string(machine.memory_bytes + 1) +
                                                " bytes of workspace, want at most " +
                                                std::to_string(machine.memory_bytes));
  ++machine.memory_bytes;
  const ForwardPlan plan = MakeForwardPlan(MakeProblem(sizes), machine);
  EXPECT_EQ(plan.states, states);
}

TEST(PlanLimits, HeadsBeyond32BitsKeepTheirNumbers) {
  const HangAlarm alarm;
  Machine wide = MakeMachine(2);  // a tile holds a million heads, so 2^33 heads need few tiles
  wide.strip_rows = 1 << 20;
  wide.l2_bytes = Power(50);
  const int64_t heads = Power(33) + 5;
  const ForwardPlan plan = MakeForwardPlan(MakeProblem({.lengths = {{1, 8}}, .heads = heads, .heads_kv = 1}), wide);
  ASSERT_LT(plan.items.size(), size_t{1} << 20);
  int64_t next = 0;
  for (const ForwardItem& item : plan.items) {
    ASSERT_EQ(item.head_begin, next);
    ASSERT_GT(item.heads, 0);
    next += item.heads;
  }
  EXPECT_EQ(next, heads);
}

TEST(PlanLimits, WorkThatNoMachineEndsIsRefusedWithBothNumbers) {
  // Each head has 2^20 * 2^31 pairs. The forward has 2 * (64 + 64) operations per pair, which are 2^59 per head.
  const auto sizes = [](int64_t heads) {
    return Sizes{.lengths = {{Power(20), Power(31)}}, .heads = heads, .heads_kv = heads, .d = 64, .dv = 64};
  };
  EXPECT_EQ(RefusedForward(sizes(4), MakeMachine(2)), "not refused");
  EXPECT_EQ(RefusedForward(sizes(8), MakeMachine(2)), "the plan: " + std::to_string(Power(62)) +
                                                          " floating-point operations, want at most " +
                                                          std::to_string(Power(61)));
  EXPECT_EQ(RefusedForward(sizes(8), MakeMachine(4)), "not refused");
}

TEST(PlanLimits, NumbersBeyond63BitsAreSaid) {
  EXPECT_STREQ(PlanTooLarge("tasks", 0x1p80, 1024).what(), "the plan: 2^63 or more (1.2e+24) tasks, want at most 1024");
}

}  // namespace
}  // namespace fa::tiling
