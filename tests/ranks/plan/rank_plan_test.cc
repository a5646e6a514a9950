#include "ranks/plan/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks/plan/rank_facts.h"
#include "support/each_case.h"
#include "tests/tiling/sample_problems.h"
#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using test::Axis;
using test::ForEachCase;

RankCall MakeCall(const Sizes& sizes, bool packed, Cut cut, int ranks, Strategy strategy, int64_t unit = kRowUnit) {
  RankCall call;
  call.problem = MakeProblem(sizes);
  call.packed = packed;
  int64_t q_rows = 0, k_rows = 0;
  for (Sequence& sequence : call.problem.sequences) {
    sequence.q_offset = packed ? q_rows : 0;
    sequence.k_offset = packed ? k_rows : 0;
    q_rows = sequence.q_offset + sequence.sq;
    k_rows = sequence.k_offset + sequence.sk;
  }
  call.q = RowShards::Make(cut, q_rows, ranks, unit);
  call.k = RowShards::Make(cut, k_rows, ranks, unit);
  call.strategy = strategy;
  return call;
}

// Expects that every (sequence, kv head, row) is computed once, with all keys that it keeps.
void ExpectEveryRowOnce(const RankCall& call, const RankPlan& plan) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, int> computed;
  for (const RankUnit& unit : plan.units) {
    for (int rank = 0; rank < call.ranks(); ++rank) {
      const std::vector<Interval> keys = NeededRows(call, plan, unit, rank, RowAxis::kKey);
      for (const RowPart& part : ComputedParts(call, plan, unit, rank)) {
        const Sequence& sequence = call.problem.sequences[static_cast<size_t>(part.sequence)];
        for (int64_t row = part.placed.rows.begin; row < part.placed.rows.end; ++row) {
          const Interval kept = sequence.rule.Keys(row);
          for (int64_t key = sequence.k_offset + kept.begin; key < sequence.k_offset + kept.end; ++key) {
            ASSERT_TRUE(std::any_of(keys.begin(), keys.end(),
                                    [&](const Interval& i) { return i.begin <= key && key < i.end; }));
          }
          const Interval heads = unit.heads[static_cast<size_t>(rank)];
          for (int64_t head = heads.begin; head < heads.end; ++head) ++computed[{part.sequence, head, row}];
        }
      }
    }
  }
  int64_t rows = 0;
  for (const Sequence& sequence : call.problem.sequences) rows += sequence.sq * call.problem.heads_kv;
  EXPECT_EQ(std::ssize(computed), rows);
  for (const auto& [row, times] : computed) EXPECT_EQ(times, 1);
}

TEST(RankPlan, EveryRowIsComputedOnceWithTheKeysThatItKeeps) {
  const auto check = [](Strategy strategy, Cut cut, int ranks, const Mask& mask, bool packed) {
    Sizes sizes{.lengths = {{37, 41}, {0, 3}, {18, 0}, {9, 30}}, .heads = 6, .heads_kv = 3, .mask = mask};
    if (!packed) sizes.lengths = {{37, 41}, {37, 41}};  // without packing, all sequences have one length
    const RankCall call = MakeCall(sizes, packed, cut, ranks, strategy, 4);
    ExpectEveryRowOnce(call, MakeRankPlan(call));
  };
  ForEachCase(check, Axis{"strategy", {Strategy::kHeads, Strategy::kSequence}},
              Axis{"cut", {Cut::kContiguous, Cut::kZigzag}}, Axis{"ranks", {1, 2, 3, 5}},
              Axis{"mask", {Mask::None(), Mask::Causal(), Mask::Band(5, 2), Mask::CausalTopLeft()}},
              Axis{"packed", {false, true}});
}

TEST(RankPlan, WhatIsSentIsWhatIsReceived) {
  for (const Strategy strategy : {Strategy::kHeads, Strategy::kSequence}) {
    const RankCall call = MakeCall({.lengths = {{2000, 2000}}, .heads = 8, .heads_kv = 4, .mask = Mask::Causal()},
                                   false, Cut::kZigzag, 4, strategy);
    const RankPlan plan = MakeRankPlan(call);
    const auto sum = [](const std::vector<int64_t>& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    };
    EXPECT_EQ(sum(plan.sent_bytes), sum(plan.received_bytes));
    EXPECT_GT(sum(plan.sent_bytes), 0);
  }
}

TEST(RankPlan, ARankOfACausalCallReceivesNoKeyThatItDoesNotSee) {
  const int64_t chunk = 2 * kRowUnit;
  const RankCall call = MakeCall({.lengths = {{4 * chunk, 4 * chunk}}, .heads_kv = 1, .mask = Mask::Causal()}, false,
                                 Cut::kContiguous, 4, Strategy::kSequence);
  const RankPlan plan = MakeRankPlan(call);
  const int64_t row_bytes = (call.problem.d + call.problem.dv) * 4;
  // Rank r needs the chunks of the ranks before it, and sends its own chunk to the ranks after it.
  EXPECT_THAT(plan.received_bytes,
              testing::ElementsAre(0, chunk * row_bytes, 2 * chunk * row_bytes, 3 * chunk * row_bytes));
  EXPECT_THAT(plan.sent_bytes,
              testing::ElementsAre(3 * chunk * row_bytes, 2 * chunk * row_bytes, chunk * row_bytes, 0));
}

TEST(RankPlan, AWindowReceivesTheKeysOfTheWindowOnly) {
  const int64_t chunk = 2 * kRowUnit;
  const RankCall call = MakeCall({.lengths = {{4 * chunk, 4 * chunk}}, .heads_kv = 1, .mask = Mask::Band(10, 0)}, false,
                                 Cut::kContiguous, 4, Strategy::kSequence);
  const RankPlan plan = MakeRankPlan(call);
  const int64_t row_bytes = (call.problem.d + call.problem.dv) * 4;
  EXPECT_THAT(plan.received_bytes, testing::ElementsAre(0, 10 * row_bytes, 10 * row_bytes, 10 * row_bytes));
}

TEST(RankPlan, ZigzagSpreadsACausalMaskEvenly) {
  const auto unevenness = [](Cut cut) {
    const RankCall call =
        MakeCall({.lengths = {{1 << 14, 1 << 14}}, .mask = Mask::Causal()}, false, cut, 8, Strategy::kSequence);
    const RankPlan plan = MakeRankPlan(call);
    const auto [least, most] = std::minmax_element(plan.flops.begin(), plan.flops.end());
    return *most / *least;
  };
  EXPECT_LT(unevenness(Cut::kZigzag), 1.001);
  EXPECT_GT(unevenness(Cut::kContiguous), 10);
}

TEST(RankPlan, FewerKvHeadsThanRanksChooseTheSequence) {
  const Sizes sizes{.lengths = {{4096, 4096}}, .heads = 8, .heads_kv = 2};
  EXPECT_EQ(MakeRankPlan(MakeCall(sizes, false, Cut::kZigzag, 4, Strategy::kAuto)).strategy, Strategy::kSequence);
}

TEST(RankPlan, MoreHeadsInFlightAreFewerUnitsWithMoreMemory) {
  RankCall call =
      MakeCall({.lengths = {{1024, 1024}}, .heads = 8, .heads_kv = 8}, false, Cut::kZigzag, 2, Strategy::kSequence);
  const RankPlan one = MakeRankPlan(call);
  call.heads_in_flight = 4;
  const RankPlan four = MakeRankPlan(call);
  EXPECT_EQ(one.units.size(), 8u);
  EXPECT_EQ(four.units.size(), 2u);
  EXPECT_EQ(four.staged_bytes[0], 4 * one.staged_bytes[0]);
  EXPECT_EQ(four.sent_bytes, one.sent_bytes);
}

/// Returns a causal call of 16K rows per rank in bf16, with 64 threads per rank.
RankCall WeakScalingCall(int ranks) {
  const int64_t rows = int64_t{16384} * ranks;
  RankCall call =
      MakeCall({.lengths = {{rows, rows}}, .heads = 32, .heads_kv = 8, .d = 128, .dv = 128, .mask = Mask::Causal()},
               false, Cut::kZigzag, ranks, Strategy::kSequence);
  call.problem.dtype = DType::kBF16;
  call.workers = 64;
  return call;
}

// The predicted efficiency of 64 ranks must be at least 0.95.
TEST(RankPlan, WeakScalingIsPredictedToKeepTheRanksBusy) {
  for (const int ranks : {8, 64}) {
    RankCall call = WeakScalingCall(ranks);
    EXPECT_GE(MakeRankPlan(call).efficiency, 0.95) << ranks;
    call.backward = true;
    EXPECT_GE(MakeRankPlan(call).efficiency, 0.95) << ranks;
  }
}

std::string RefusalOf(const RankCall& call) {
  try {
    (void)MakeRankPlan(call);
  } catch (const PlanTooLarge& error) {
    return error.what();
  }
  return "not refused";
}

// Two ranks hold the rows of each sequence alternately, so sums travel in more chunks than there are tags.
TEST(RankPlan, AutoTakesHeadsWhereTheSumsOfASequenceAreTooMany) {
  constexpr int64_t kSequences = 700, kRows = 1024, kKeys = 6 * kRows;
  const std::vector<std::pair<int64_t, int64_t>> lengths(kSequences, {kRows, kKeys});
  RankCall call = MakeCall({.lengths = lengths, .heads = 2, .heads_kv = 2}, true, Cut::kContiguous, 2, Strategy::kAuto);
  std::vector<std::vector<Interval>> rows(2);
  for (int64_t row = 0; row < kSequences * kRows; row += kRowUnit) {
    rows[static_cast<size_t>(row / kRowUnit % 2)].push_back({row, row + kRowUnit});
  }
  call.q = RowShards(kSequences * kRows, rows);
  call.backward = true;
  EXPECT_EQ(MakeRankPlan(call).strategy, Strategy::kHeads);
  call.strategy = Strategy::kSequence;
  const std::string refusal = RefusalOf(call);
  EXPECT_THAT(refusal, testing::HasSubstr("chunks of sums that travel between ranks, want at most 32000 (shards.cut"));
  call.strategy = Strategy::kAuto;
  call.problem.heads_kv = 1;
  EXPECT_EQ(RefusalOf(call), refusal);
}

TEST(RankPlan, RefusesWhatMemoryCannotHoldWithBothNumbers) {
  const Sizes sizes{.lengths = {{1024, 1024}}, .heads = 1000, .heads_kv = 1000};
  RankCall units = MakeCall(sizes, false, Cut::kZigzag, 2, Strategy::kSequence);
  units.memory_bytes = 1 << 20;
  EXPECT_THAT(RefusalOf(units),
              testing::MatchesRegex("the plan: 1000 units of a call over ranks, want at most [0-9]+"));
  units.heads_in_flight = 1000;
  EXPECT_EQ(RefusalOf(units), "not refused");

  RankCall blocks =
      MakeCall({.lengths = {{1024, 1024}}, .heads = 1000, .heads_kv = 1}, false, Cut::kZigzag, 2, Strategy::kSequence);
  blocks.backward = true;
  blocks.memory_bytes = 1 << 20;
  EXPECT_THAT(RefusalOf(blocks),
              testing::MatchesRegex("the plan: [0-9]+ blocks of sums of a call over ranks, want at most 4096"));

  const int64_t rows = int64_t{1} << 58;
  EXPECT_THAT(RefusalOf(MakeCall({.lengths = {{rows, 16}}}, false, Cut::kZigzag, 2, Strategy::kHeads)),
              testing::HasSubstr(" bytes that travel between ranks, want at most 4611686018427387904"));
}

TEST(RankPlan, RefusesNoSumsThatTravelInSixtyThreeBits) {
  const int64_t rows = int64_t{1} << 24;
  RankCall call = MakeCall({.lengths = {{rows, rows}}, .heads = 128, .heads_kv = 128, .d = 128, .dv = 128}, false,
                           Cut::kContiguous, 1024, Strategy::kHeads);
  call.problem.dtype = DType::kBF16;
  call.backward = true;
  EXPECT_EQ(RefusalOf(call), "not refused");
}

TEST(RankPlan, RefusesMoreHeadsOfAGroupThanSixtyThreeBitsOfBytes) {
  RankCall call =
      MakeCall({.lengths = {{1, 1}}, .heads_kv = 1, .d = 1024, .dv = 1024}, false, Cut::kZigzag, 2, Strategy::kHeads);
  call.backward = true;
  call.problem.heads = int64_t{1} << 50;
  EXPECT_THAT(RefusalOf(call), testing::HasSubstr(" bytes that travel between ranks, want at most"));
}

// More heads in flight make smaller chunks and more blocks. Memory may be too small for these blocks, although it
// suffices with one head in flight.
TEST(RankPlan, AChoiceThatMemoryCannotHoldIsNotTaken) {
  RankCall call = WeakScalingCall(16);
  call.backward = true;
  EXPECT_GT(MakeRankPlan(call).heads_in_flight, 1);
  call.heads_in_flight = 1;
  const RankPlan one = MakeRankPlan(call);
  constexpr int64_t kParts = 2 * 16, kGroup = 4;
  call.memory_bytes = std::ssize(one.units[0].sums->chunks) * kParts * kGroup * kTaskBytes;
  call.heads_in_flight = 0;
  EXPECT_EQ(RefusalOf(call), "not refused");
}

TEST(RankPlan, AnyNumberOfHeadsInFlightIsAllOfThem) {
  RankCall call =
      MakeCall({.lengths = {{1024, 1024}}, .heads = 8, .heads_kv = 8}, false, Cut::kZigzag, 2, Strategy::kHeads);
  call.heads_in_flight = std::numeric_limits<int64_t>::max();
  const RankPlan plan = MakeRankPlan(call);
  ASSERT_EQ(plan.units.size(), 1u);
  EXPECT_EQ(plan.units[0].heads[1], (Interval{4, 8}));
  EXPECT_EQ(plan.heads_in_flight, 4);
}

TEST(RankPlan, TheBackwardTakesTheHeadsInFlightThatItsMemoryAllows) {
  RankCall call = WeakScalingCall(16);
  EXPECT_EQ(MakeRankPlan(call).heads_in_flight, 1);  // in a forward ranks do not wait for each other
  call.backward = true;
  const RankPlan chosen = MakeRankPlan(call);
  call.heads_in_flight = 1;
  const RankPlan one = MakeRankPlan(call);
  EXPECT_EQ(one.heads_in_flight, 1);
  EXPECT_GT(chosen.heads_in_flight, 1);
  EXPECT_GT(chosen.efficiency, one.efficiency);
  // A rank with few threads gains little from several heads in flight. Its memory also holds only few heads of long
  // sequences.
  call = WeakScalingCall(64);
  call.backward = true;
  call.workers = 2;
  const RankPlan few = MakeRankPlan(call);
  EXPECT_EQ(few.heads_in_flight, 1);
  EXPECT_GE(few.efficiency, 0.9);
  // One head is enough to keep one thread busy.
  call = WeakScalingCall(2);
  call.backward = true;
  call.workers = 1;
  const RankPlan single = MakeRankPlan(call);
  EXPECT_EQ(single.heads_in_flight, 1);
  EXPECT_GE(single.efficiency, 0.95);
}

// A rank needs more memory for staged rows with more heads in flight. So a plan chooses all heads only if the caller
// asks for it.
TEST(RankPlan, NeverChoosesAllHeads) {
  for (const auto& [heads_kv, most] : {std::pair{1, 1}, {2, 1}, {3, 2}, {8, 4}}) {
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      RankCall call = WeakScalingCall(16);
      call.problem.heads_kv = heads_kv;
      call.problem.heads = 4 * heads_kv;
      call.backward = true;
      call.strategy = strategy;
      call.workers = 256;  // with so many workers, a plan may use enough memory for all heads
      EXPECT_LE(MakeRankPlan(call).heads_in_flight, most) << heads_kv;
    }
  }
}

// If all heads are in flight, they are one unit. So no memory for a next unit is needed.
TEST(RankPlan, OneUnitNeedsRoomForOne) {
  RankCall call = WeakScalingCall(4);
  call.backward = true;
  call.heads_in_flight = 4;
  const RankPlan two_units = MakeRankPlan(call);
  call.heads_in_flight = 8;
  const RankPlan one_unit = MakeRankPlan(call);
  ASSERT_EQ(two_units.units.size(), 2u);
  ASSERT_EQ(one_unit.units.size(), 1u);
  EXPECT_EQ(one_unit.staged_bytes, two_units.staged_bytes);
}

TEST(RankPlan, SaysWhatTheBitsAre) {
  RankCall call = MakeCall({.lengths = {{1000, 1000}}}, false, Cut::kZigzag, 2, Strategy::kSequence);
  EXPECT_THAT(DescribeRanks(call, MakeRankPlan(call)), testing::HasSubstr("bits: as one process"));
  call.q = call.k = RowShards::Make(Cut::kZigzag, 1000, 2, 100);
  EXPECT_THAT(DescribeRanks(call, MakeRankPlan(call)), testing::HasSubstr("bits: of this cut"));
}

TEST(RankPlan, ACutOfRowsThatAreSummedAtOnceIsACutOfItsOwn) {
  Sizes sizes;
  sizes.lengths = {{200, 200}, {700, 700}};
  const auto as_one_process = [&](bool backward, Strategy strategy, int64_t summed_rows) {
    RankCall call = MakeCall(sizes, true, Cut::kContiguous, 2, strategy);  // row 384 is row 184 of its sequence
    call.backward = backward;
    call.summed_rows = summed_rows;
    return MakeRankPlan(call).as_one_process;
  };
  EXPECT_TRUE(as_one_process(true, Strategy::kSequence, 1));
  EXPECT_TRUE(as_one_process(true, Strategy::kSequence, 8));
  EXPECT_FALSE(as_one_process(true, Strategy::kSequence, 32));
  EXPECT_TRUE(as_one_process(true, Strategy::kHeads, 32));
  EXPECT_TRUE(as_one_process(false, Strategy::kSequence, 32));
}

TEST(RankPlan, RowsThatAreSummedAtOnceGoToTheRankOfTheFirst) {
  Sizes sizes;
  sizes.lengths = {{201, 200}, {0, 10}, {700, 700}, {30, 30}};
  // The cuts are at rows 256, 512 and 768 of 931.
  RankCall call = MakeCall(sizes, true, Cut::kContiguous, 4, Strategy::kSequence);
  call.backward = true;
  call.summed_rows = 32;
  call.rows_may_move = true;
  const RankPlan plan = MakeRankPlan(call);
  EXPECT_TRUE(plan.as_one_process);
  // The third sequence begins at row 201. In it, the cuts are at rows 55, 311 and 567. The groups of rows that kernels
  // add at once end at rows 64, 320 and 576.
  EXPECT_EQ(plan.moved_rows, 9 + 9 + 9);
  EXPECT_THAT(plan.q.Of(1), testing::ElementsAre(PlacedRows{{265, 521}, 0}));
  EXPECT_EQ(RowsBetween(call, plan, 1, 0).held, (std::vector<PlacedRows>{{{256, 265}, 0}}));
  EXPECT_EQ(RowsBetween(call, plan, 1, 0).computed, (std::vector<PlacedRows>{{{256, 265}, 256}}));
  EXPECT_THAT(RowsBetween(call, plan, 0, 1).held, testing::IsEmpty());
  EXPECT_THAT(DescribeRanks(call, plan), testing::HasSubstr("27 query rows are computed by the rank of the rows"));
  for (const RowPart& part : ComputedParts(call, plan, plan.units.front(), 1))
    EXPECT_EQ(part.placed.rows.begin % 32, 0);

  call.rows_may_move = false;
  EXPECT_EQ(MakeRankPlan(call).moved_rows, 0);
  call.rows_may_move = true;
  call.q = RowShards::Make(Cut::kContiguous, 931, 4, 100);
  const RankPlan of_this_cut = MakeRankPlan(call);
  EXPECT_FALSE(of_this_cut.as_one_process);
  EXPECT_EQ(of_this_cut.moved_rows, 0);
}

// Rank 0 holds two adjacent intervals, the later one first. They divide a group of rows that kernels add at once, as a
// cut between ranks does. But no row moves to another rank.
TEST(RankPlan, RanksComputeCopiesWhereTheirRowsChange) {
  Sizes sizes;
  sizes.lengths = {{101, 101}, {155, 155}, {128, 128}};
  sizes.heads = 4;
  sizes.heads_kv = 2;
  RankCall call = MakeCall(sizes, true, Cut::kContiguous, 2, Strategy::kSequence);
  call.q = call.k = {384, {{{128, 256}, {0, 128}}, {{256, 384}}}};
  call.heads_in_flight = 1;
  call.backward = true;
  call.summed_rows = 2;
  const RankPlan parted = MakeRankPlan(call);
  EXPECT_FALSE(parted.as_one_process);
  for (const int rank : {0, 1}) EXPECT_FALSE(ComputesCopies(call, parted, rank));

  call.rows_may_move = true;
  const RankPlan plan = MakeRankPlan(call);
  EXPECT_TRUE(plan.as_one_process);
  EXPECT_EQ(plan.moved_rows, 0);
  // Row 128 is row 27 of its sequence.
  EXPECT_THAT(plan.q.Of(0), testing::ElementsAre(PlacedRows{{129, 256}, 0}, PlacedRows{{0, 129}, 127}));
  EXPECT_TRUE(ComputesCopies(call, plan, 0));
  EXPECT_FALSE(ComputesCopies(call, plan, 1));
  // The bytes count q and dq, out and its gradient, and two statistics, for all heads.
  const AttentionProblem& problem = call.problem;
  const auto element = static_cast<int64_t>(SizeOf(problem.dtype)), statistic = static_cast<int64_t>(sizeof(float));
  const int64_t of_row = problem.heads * (element * (2 * problem.d + 2 * problem.dv) + 2 * statistic);
  EXPECT_EQ(plan.staged_bytes[0], parted.staged_bytes[0] + 256 * of_row);
  EXPECT_EQ(plan.staged_bytes[1], parted.staged_bytes[1]);
  EXPECT_EQ(plan.sent_bytes, parted.sent_bytes);
}

}  // namespace
}  // namespace fa::tiling
