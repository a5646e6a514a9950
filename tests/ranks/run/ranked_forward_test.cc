// Compares the forward over ranks, which are threads, bit by bit with the same call in one process.
#include "ranks/run/ranked_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/each_case.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::HasSubstr;

class RankedForward : public OnRankLevels {};

TEST_P(RankedForward, HasTheBitsOfOneProcessForEveryCutAndMask) {
  const auto check = [&](DType dtype, int mode) {
    ForwardCase c = LongForwardCase(dtype, mode);
    if (mode == 0) c.heads = c.heads_kv;
    const ForwardOfOneProcess one(c, GetParam());
    for (const int ranks : Sanitized() ? std::vector{3} : std::vector{1, 2, 3, 4, 6, 8}) {
      one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks);
      }
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kBF16}}, Axis{"mode", {0, 3, 4, 5}});
}

TEST_P(RankedForward, MovesNoKeyThatNoRowOfARankSees) {
  ForwardCase c = LongForwardCase(DType::kF32, 3);
  c.lengths = EqualLengths(1, 768, 768);
  const ForwardProblem problem(c);
  ThreadRanks all(3);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  for (const Status& status : RunRanks(problem, shards, all, 3, GetParam())) ASSERT_TRUE(status.ok());
  const int64_t chunk_bytes = 256 * c.heads_kv * (c.d + c.dv) * 4;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(all.received_bytes(rank), rank * chunk_bytes);
    EXPECT_EQ(all.sent_bytes(rank), (2 - rank) * chunk_bytes);
  }
}

TEST_P(RankedForward, TakesIntervalsInAnyOrderAndRanksWithoutRows) {
  ForwardCase c = LongForwardCase(DType::kF32, 3);
  c.lengths = EqualLengths(2, 640, 640);
  SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
  shards.intervals = {{{512, 640}, {0, 128}}, {}, {{128, 256}, {384, 512}}, {{256, 384}}};
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    shards.strategy = strategy;
    ExpectBitsOfOneProcess(c, shards, 4, GetParam());
  }
}

TEST_P(RankedForward, RanksWithoutRowsNeedNoMemory) {
  for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
    ForwardCase c = LongForwardCase(DType::kF32, 3);
    c.layout = layout;
    c.d_rope = 8;
    c.lengths = EqualLengths(1, 140, 140);
    const ForwardOfOneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 3);
    }
  }
}

TEST_P(RankedForward, CutsThroughPackedSequencesAndTheirTail) {
  const auto check = [&](DType dtype, int ranks, Cut cut, Strategy strategy) {
    ForwardCase c = LongForwardCase(dtype, 3);
    c.layout = Layout::kTND;
    c.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    c.tail_q = 150;
    c.tail_kv = 20;
    ExpectBitsOfOneProcess(c, ShardsOf(c, cut, strategy), ranks, GetParam());
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kF16}}, Axis{"ranks", {2, 4}},
              Axis{"cut", {Cut::kContiguous, Cut::kZigzag}}, Axis{"strategy", {Strategy::kSequence, Strategy::kHeads}});
}

// Few rows have special kernels, and long keys are cut into parts. The whole sequence must decide both, not one rank's
// rows.
TEST_P(RankedForward, ChoosesKernelsByTheWholeSequence) {
  for (const int64_t sq : {int64_t{12}, int64_t{130}, int64_t{257}}) {
    ForwardCase c = LongForwardCase(DType::kF32, 3);
    c.lengths = EqualLengths(1, sq, 1500);
    for (const int ranks : {2, 3}) {
      ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kSequence), ranks, GetParam());
    }
  }
}

// `attend`, a kernel for few rows, sums keys in another order than tiles do. The rows of the whole sequence decide
// which keys `attend` takes.
TEST_P(RankedForward, AttendsToWhatEveryRowOfTheWholeSequenceKeeps) {
  struct Few {
    int64_t group, sq, before_the_cut;
  };
  struct Window {
    int mode;
    int64_t sk, pre = Mask::kUnlimited;
  };
  constexpr int64_t kUnit = 128;
  for (const Few few : {Few{1, 8, 4}, Few{1, 5, 4}, Few{1, 2, 1}, Few{2, 4, 1}, Few{4, 2, 1}}) {
    // Keys are cut into parts of 512. A window begins in the first part or in the second. With pre = 1003 - 512, the
    // last row's keys begin exactly at the second part.
    for (const Window window : {Window{3, 1004}, Window{3, few.sq}, Window{3, 72}, Window{3, 64 + few.sq},
                                Window{4, 1004, 150}, Window{4, 1004, 1003 - 512}, Window{4, 1004, 1003 - 511},
                                Window{4, 1004, 1003 - 510 - few.sq}, Window{4, 300, 100}, Window{5, 600}}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        ForwardCase c;
        c.dtype = dtype;
        c.layout = Layout::kTND;
        c.heads = few.group;
        c.d = c.dv = 64;
        c.mask = {.mode = window.mode, .pre = window.pre, .next = 0};
        if (window.mode == 5) c.mask.prefix = {0, 300, 0};
        const int64_t first = kUnit - few.before_the_cut, last = 2 * kUnit - first - few.sq;
        c.lengths = {{first, few.sq, last}, {8, window.sk, 8}};
        ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 2, GetParam());
      }
    }
  }
}

TEST_P(RankedForward, TakesEveryFeatureOfTheOneProcessCall) {
  const int wanted = RandomCases(40);
  int taken = 0;
  for (uint64_t seed = 1; taken < wanted && seed < 10'000; ++seed) {
    const ForwardCase c = RandomForwardCase(seed);
    if (!TakenOverRanks(c)) continue;
    ++taken;
    // Other cuts lie at multiples of 128 rows, which many random cases do not have. Intervals may cut at any row,
    // because a row's bits in the forward do not depend on other rows.
    const Strategy wanted = seed % 2 == 0 ? Strategy::kSequence : Strategy::kHeads;
    SequenceShards shards = ShardsOf(c, Cut::kContiguous, StrategyFor(c, wanted));
    const int ranks = 2 + static_cast<int>(seed % 3);
    if (shards.sq == shards.sk && shards.sq > 0) {
      shards.cut = Cut::kIntervals;
      shards.intervals.resize(static_cast<size_t>(ranks));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        shards.intervals[static_cast<size_t>(ranks - 1 - rank)] = {
            {shards.sq * rank / ranks, shards.sq * (rank + 1) / ranks}};
      }
    }
    ExpectBitsOfOneProcess(c, shards, ranks, GetParam());
  }
  EXPECT_EQ(taken, wanted);
}

TEST_P(RankedForward, PlansRunManyTimesAndSayWhatTheyDo) {
  const ForwardCase c = LongForwardCase(DType::kBF16, 3);
  const ForwardProblem one(c), over_ranks(c);
  const ForwardOutputs want = OutputsOf(one, ContextOf(GetParam(), 2));
  SequenceShards shards = ShardsOf(c, Cut::kZigzag, Strategy::kAuto);
  shards.heads_in_flight = 2;
  ThreadRanks all(2);
  std::vector<std::string> texts(2);
  std::vector<PlanInfo> infos(2);
  std::vector<Traffic> traffic(2);
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 2), RowsOfRank(shards, shards.sk, rank, 2));
    const AttentionArgs args = PartOf(over_ranks.args(), c.layout, tensors);
    const auto plan = PlanFlashAttention(args, over_ranks.options(), shards, transport, ContextOf(GetParam(), 1));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Workspace workspace;
    for (int run = 0; run < 3; ++run) {
      const Status status = plan->Run(args, workspace);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    tensors.Return();
    texts[static_cast<size_t>(rank)] = plan->Describe();
    infos[static_cast<size_t>(rank)] = plan->info();
    traffic[static_cast<size_t>(rank)] = transport->traffic();
  });
  EXPECT_TRUE(SameBits(want, over_ranks.Outputs()));
  EXPECT_THAT(texts[1], HasSubstr("rank 1 of ranks: 2"));
  EXPECT_THAT(texts[1], HasSubstr("bits: as one process (row unit 128)"));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_GT(infos[rank].flops, 0);
    ASSERT_TRUE(infos[rank].ranks.has_value());
    const RanksInfo& ranks = *infos[rank].ranks;
    // Describe() states the numbers of info() in words, for all ranks.
    EXPECT_THAT(texts[rank], HasSubstr("strategy " + ranks.strategy + ", " + std::to_string(ranks.units) +
                                       " units of up to " + std::to_string(ranks.heads_in_flight) + " kv heads"));
    EXPECT_THAT(texts[rank], HasSubstr("this rank: " + std::to_string(ranks.sent_bytes[rank]) + " bytes sent, " +
                                       std::to_string(ranks.received_bytes[rank]) + " bytes received, " +
                                       std::to_string(ranks.staged_bytes[rank]) + " bytes staged"));
    // By heads, each rank has only one of the two kv heads.
    EXPECT_EQ(ranks.heads_in_flight, ranks.strategy == "heads" ? 1 : 2);
    EXPECT_TRUE(ranks.as_one_process);
    EXPECT_GT(ranks.seconds, 0);
    EXPECT_GT(ranks.efficiency, 0);
    EXPECT_LE(ranks.efficiency, 1);
    EXPECT_GE(ranks.hidden, 0);
    EXPECT_LE(ranks.hidden, 1);
    EXPECT_GT(traffic[rank].sent_bytes, 0);
    EXPECT_EQ(traffic[rank].sent_bytes, 3 * ranks.sent_bytes[rank]);
    EXPECT_EQ(traffic[rank].received_bytes, 3 * ranks.received_bytes[rank]);
  }
}

TEST_P(RankedForward, RanksOfDifferentInstructionSetsUseTheLowest) {
  const ForwardCase c = LongForwardCase(DType::kBF16, 3);
  const ForwardProblem one(c), over_ranks(c);
  const Isa lowest = LowestOf(DetectIsa(), GetParam());
  const ForwardOutputs want = OutputsOf(one, ContextOf(lowest, 1));
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    const SequenceShards shards = ShardsOf(c, Cut::kZigzag, strategy);
    over_ranks.ForgetOutputs();
    ThreadRanks(3).Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 3), RowsOfRank(shards, shards.sk, rank, 3));
      const AttentionArgs args = PartOf(over_ranks.args(), c.layout, tensors);
      Context* const context = ContextOf(rank == 1 ? GetParam() : DetectIsa(), 1);
      const auto plan = PlanFlashAttention(args, over_ranks.options(), shards, transport, context);
      const Status status = plan.ok() ? plan->Run(args) : plan.status();
      ASSERT_TRUE(status.ok()) << status.message();
      tensors.Return();
      const std::string says = "instruction set: " + std::string(Name(lowest)) + ", the lowest of all ranks";
      EXPECT_EQ(plan->Describe().find(says) != std::string::npos, DetectIsa() != GetParam()) << plan->Describe();
    });
    EXPECT_TRUE(SameBits(want, over_ranks.Outputs()));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RankedForward, testing::ValuesIn(RankLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
