// Compares the backward over ranks, which are threads, bit by bit with the same call in one process.
#include "ranks/run/ranked_backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/each_case.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::HasSubstr;
using testing::Not;

TEST_P(RankedBackward, HasTheBitsOfOneProcessForEveryCutAndMask) {
  const auto check = [&](DType dtype, int mode) {
    BackwardCase c = LongCase(dtype, mode);
    if (dtype == DType::kBF16 && mode > 3) return;
    if (mode == 0) c.forward.heads = c.forward.heads_kv;
    const OneProcess one(c, GetParam());
    const bool all = !Sanitized() && GetParam() == DetectIsa();
    for (const int ranks : all ? std::vector{1, 2, 3, 4, 6, 7, 8} : std::vector{3}) {
      one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks);
      }
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kBF16}}, Axis{"mode", {0, 3, 4, 5}});
}

// The loop of the tile unit (docs/kernels.md) computes heads whose sizes are multiples of 32. Over ranks, each of the
// loop's copies of K and V holds one chunk of keys.
TEST_P(RankedBackward, HeadsOfWholeGroupsOfColumnsHaveTheBitsOfOneProcess) {
  BackwardCase c = LongCase(DType::kBF16, 3);
  c.forward.d = 64;
  c.forward.dv = 32;
  const OneProcess one(c, GetParam());
  for (const int ranks : {1, 3}) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kSequence), ranks);
}

// If Transport::Test waits, messages arrive only between blocks. Otherwise messages arrive at any time. Both kinds of
// transport are tested, on one thread and on several.
TEST_P(RankedBackward, TransportsThatCanOnlyWaitGiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const BackwardCase c = LongCase(dtype, 3);
    const OneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kHeads, Strategy::kSequence}) {
      const SequenceShards shards = ShardsOf(c, Cut::kZigzag, strategy);
      for (const int threads : {1, 3}) {
        one.ExpectSameBits(shards, 3, threads, /*can_test=*/false);
        one.ExpectSameBits(shards, 3, threads, /*can_test=*/true);
      }
    }
  }
}

// The columns of a block start one after the other, and they start sooner if tiles are smaller. So the tiles of a block
// have fewer rows than the tiles of one process.
TEST_P(RankedBackward, SmallerTilesOfBlocksChangeNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    BackwardCase c = LongCase(dtype, 0);
    c.forward.lengths = EqualLengths(1, 1024, 1024);
    const OneProcess one(c, GetParam());
    SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
    shards.heads_in_flight = 1;
    one.ExpectSameBits(shards, 2, 4);
  }
}

TEST_P(RankedBackward, TakesIntervalsInAnyOrderAndRanksWithoutRows) {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.lengths = EqualLengths(3, 640, 640);
  SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
  shards.intervals = {{{512, 640}, {0, 128}}, {}, {{128, 256}, {384, 512}}, {{256, 384}}};
  const OneProcess one(c, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    for (const int64_t heads : {1, 2}) {
      shards.strategy = strategy;
      shards.heads_in_flight = heads;
      one.ExpectSameBits(shards, 4);
    }
  }
}

TEST_P(RankedBackward, RanksWithoutRowsNeedNoMemory) {
  for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
    BackwardCase c = LongCase(DType::kF32, 3);
    c.forward.layout = layout;
    c.forward.d_rope = 8;
    c.forward.lengths = EqualLengths(1, 140, 140);
    const OneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 3);
    }
  }
}

TEST_P(RankedBackward, CutsThroughPackedSequencesAndTheirTail) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    BackwardCase c = LongCase(dtype, 3);
    c.forward.layout = Layout::kTND;
    c.forward.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    c.forward.tail_q = 150;
    c.forward.tail_kv = 20;
    c.forward.sink = true;
    const OneProcess one(c, GetParam());
    ForEachCase([&](int ranks, Cut cut, Strategy s) { one.ExpectSameBits(ShardsOf(c, cut, s), ranks); },
                Axis{"ranks", {2, 4}}, Axis{"cut", {Cut::kContiguous, Cut::kZigzag}},
                Axis{"strategy", {Strategy::kSequence, Strategy::kHeads}});
  }
}

// Kernels of bf16 pairs add 2 rows of a sequence at once, and AMX kernels add 32. If a cut divides such a group, the
// rank that holds the group's first row computes the whole group.
TEST_P(RankedBackward, MovesRowsThatAreSummedAtOnce) {
  BackwardCase c = LongCase(DType::kBF16, 3);
  c.forward.layout = Layout::kTND;
  c.forward.lengths = {{101, 2, 250, 33, 2}, {101, 5, 250, 40, 0}};
  // The cuts at 128, 256 and 384 divide the third sequence at rows 25 and 153, and the fourth at row 31.
  c.forward.tail_q = 3;
  c.forward.d_rope = 8;
  c.forward.sink = true;
  c.forward.dropout = DropoutForm::kSeed;
  c.forward.keep_prob = 0.8f;
  const OneProcess one(c, GetParam());
  for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
    for (const int ranks : {2, 3, 4}) one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks);
    one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), 2, 2, /*can_test=*/false);
  }
  c.forward.pse = PseForm::kSlopes;
  c.forward.pse_type = reference::PseType::kSlopes;
  ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 4, GetParam());
}

// A rank may hold two adjacent intervals, the later one first, which divide rows that kernels add at once. No row moves
// to another rank, but the rank must place the divided rows next to each other.
TEST_P(RankedBackward, RowsThatAreSummedAtOnceStayTogetherAcrossIntervalsInReverse) {
  BackwardCase c = LongCase(DType::kBF16, 3);
  c.forward.layout = Layout::kTND;
  c.forward.d_rope = 8;
  c.forward.sink = true;
  const auto expect_same_bits = [&](const std::vector<int64_t>& lengths,
                                    std::vector<std::vector<SequenceShards::Interval>> intervals) {
    c.forward.lengths = {lengths, lengths};
    SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
    shards.intervals = std::move(intervals);
    ExpectBitsOfOneProcess(c, shards, static_cast<int>(std::ssize(shards.intervals)), GetParam());
  };
  expect_same_bits({101, 155}, {{{128, 256}, {0, 128}}});
  expect_same_bits({101, 155, 128}, {{{128, 256}, {0, 128}}, {{256, 384}}});
  // Rows of rank 1 move to rank 0 too; the rows of rank 2 stay.
  expect_same_bits({101, 250, 33, 128}, {{{128, 256}, {0, 128}}, {{256, 384}}, {{384, 512}}});
}

TEST_P(RankedBackward, SumsParametersOverRowsAndTheBatchAsOneProcess) {
  for (const bool shared : {false, true}) {
    BackwardCase c = LongCase(DType::kF32, 3);
    c.forward.lengths = EqualLengths(3, 300, 300);
    c.forward.pse = PseForm::kSlopes;
    c.forward.pse_broadcast_batch = shared;
    c.forward.pse_type = reference::PseType::kSlopes;
    c.forward.sink = true;
    const OneProcess one(c, GetParam());
    for (const int ranks : {2, 3}) {
      for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
        one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), ranks);
      }
    }
  }
}

// There are more or fewer keys than rows, so some rows have no keys or some keys have no rows.
TEST_P(RankedBackward, WritesGradientsOfRowsWithoutKeysAndKeysWithoutRows) {
  for (const int64_t sk : {int64_t{200}, int64_t{1000}}) {
    BackwardCase c = LongCase(DType::kBF16, 2);
    c.forward.lengths = EqualLengths(2, 600, sk);
    c.forward.mask.pre = -100;
    c.forward.mask.next = 300;
    c.forward.sink = true;
    const OneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, strategy), 3);
    }
  }
}

TEST_P(RankedBackward, TakesEveryFeatureOfTheOneProcessCall) {
  const int wanted = RandomCases(30);
  int taken = 0;
  for (uint64_t seed = 1; taken < wanted && seed < 10'000; ++seed) {
    const BackwardCase c = RandomBackwardCase(seed);
    if (!TakenOverRanks(c.forward)) continue;
    ++taken;
    // Other cuts lie at multiples of 128 rows, which many random cases do not have. Intervals cut these cases too.
    // 16-bit rows are cut only between groups of rows that kernels add at once.
    const Strategy wanted = seed % 2 == 0 ? Strategy::kSequence : Strategy::kHeads;
    SequenceShards shards = ShardsOf(c, Cut::kContiguous, StrategyFor(c.forward, wanted));
    const int ranks = 2 + static_cast<int>(seed % 3);
    const int64_t unit = c.forward.dtype == DType::kF32 ? 1 : 32;
    if (shards.sq == shards.sk && shards.sq > 0) {
      shards.cut = Cut::kIntervals;
      shards.intervals.resize(static_cast<size_t>(ranks));
      const auto end_of = [&](int64_t rank) {
        return rank == ranks ? shards.sq : shards.sq * rank / ranks / unit * unit;
      };
      for (int64_t rank = 0; rank < ranks; ++rank) {
        shards.intervals[static_cast<size_t>(ranks - 1 - rank)] = {{end_of(rank), end_of(rank + 1)}};
      }
    }
    ExpectBitsOfOneProcess(c, shards, ranks, GetParam());
  }
  EXPECT_EQ(taken, wanted);
}

TEST_P(RankedBackward, MovesTheBytesOfThePlan) {
  for (const PseForm pse : {PseForm::kNone, PseForm::kRow}) {
    BackwardCase c = LongCase(DType::kBF16, 3);
    c.forward.lengths = EqualLengths(2, 640, 640);
    c.forward.sink = true;
    c.forward.pse = pse;
    if (pse == PseForm::kRow) c.forward.pse_type = reference::PseType::kAddThenScale;
    const BackwardProblem problem(c);
    const int64_t gathered = 2 * c.forward.heads * 4;  // a rank gets dsink from two ranks and sends its own to both
    const auto check = [&](Cut cut, Strategy strategy) {
      ThreadRanks all(3);
      const RanksRun run = RunRanks(problem, ShardsOf(c, cut, strategy), all, 3, GetParam());
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(run.statuses[static_cast<size_t>(rank)].ok());
        EXPECT_THAT(run.plans[static_cast<size_t>(rank)],
                    HasSubstr("this rank: " + std::to_string(all.sent_bytes(rank) + gathered) + " bytes sent, " +
                              std::to_string(all.received_bytes(rank) + gathered) + " bytes received"));
      }
    };
    ForEachCase(check, Axis{"cut", {Cut::kContiguous, Cut::kZigzag}},
                Axis{"strategy", {Strategy::kSequence, Strategy::kHeads}});
  }
}

TEST_P(RankedBackward, OneErrorOnAllRanksNamesTheRankAndWritesNothing) {
  const BackwardCase c = LongCase(DType::kF32, 3);
  const BackwardProblem problem(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  constexpr int kRanks = 3;
  const auto run = [&](const auto& spoil) {
    std::vector<Status> statuses(kRanks);
    ThreadRanks all(kRanks);
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
      AttentionGradArgs args = PartOf(problem.args(), c.forward.layout, tensors);
      AttentionOptions options = problem.options();
      SequenceShards own = shards;
      if (rank == 2) spoil(args, options, own);
      const auto* dq = static_cast<const std::byte*>(args.dq.data);
      statuses[static_cast<size_t>(rank)] = FlashAttentionGrad(args, options, own, transport, ContextOf(GetParam(), 1));
      EXPECT_EQ(*dq, std::byte{0xff});
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    return statuses[0].message();
  };
  using Args = AttentionGradArgs;
  using Options = AttentionOptions;
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.dq.shape[2] += 1; }),
              HasSubstr("rank 2: dq.shape[2]="));
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.softmax_max.shape[2] += 1; }),
              HasSubstr("rank 2: softmax_max.shape[2]="));
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.d_out.dtype = DType::kF16; }),
              HasSubstr("rank 2: d_out.dtype=f16, want f32 (out.dtype)"));
  EXPECT_THAT(run([](Args&, Options& options, SequenceShards&) { options.scale = 0.5f; }),
              HasSubstr("rank 2: scale=0.5, want 0.204"));
  EXPECT_THAT(run([](Args&, Options&, SequenceShards& own) { own.strategy = Strategy::kHeads; }),
              HasSubstr("rank 2: shards.strategy=heads, want sequence (rank 0)"));
}

TEST_P(RankedBackward, ARankThatDiesIsAnErrorOnAllAndNobodyHangs) {
  const BackwardCase c = LongCase(DType::kF32, 0);
  const BackwardProblem problem(c);
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    for (const int64_t message : {0, 1, 3, 9}) {
      if (message == 9 && strategy == Strategy::kHeads) continue;  // by heads a rank sends fewer than 10 messages
      ThreadRanks all(3);
      all.DieAtMessage(1, message);
      const RanksRun run = RunRanks(problem, ShardsOf(c, Cut::kZigzag, strategy), all, 3, GetParam());
      for (const Status& status : run.statuses) EXPECT_THAT(status.message(), HasSubstr("has left"));
    }
  }
}

TEST_P(RankedBackward, PlansRunManyTimesWithAnyNumberOfThreads) {
  const BackwardCase c = LongCase(DType::kBF16, 3);
  const BackwardProblem problem(c);
  const BackwardOutputs want = OutputsOf(problem, ContextOf(GetParam(), 2));
  const auto of_one_process = PlanFlashAttentionGrad(problem.args(), problem.options(), ContextOf(GetParam(), 2));
  ASSERT_TRUE(of_one_process.ok()) << of_one_process.status().message();
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    SCOPED_TRACE(strategy == Strategy::kHeads ? "heads" : "sequence");
    SequenceShards shards = ShardsOf(c, Cut::kZigzag, strategy);
    shards.heads_in_flight = 2;
    problem.ForgetOutputs();
    ThreadRanks all(2);
    std::vector<std::string> texts(2);
    std::vector<PlanInfo> infos(2);
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 2), RowsOfRank(shards, shards.sk, rank, 2));
      const AttentionGradArgs args = PartOf(problem.args(), c.forward.layout, tensors);
      const auto plan =
          PlanFlashAttentionGrad(args, problem.options(), shards, transport, ContextOf(GetParam(), 2 + rank));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Workspace workspace;
      for (int run = 0; run < 3; ++run) {
        const Status status = plan->Run(args, workspace);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      tensors.Return();
      texts[static_cast<size_t>(rank)] = plan->Describe();
      infos[static_cast<size_t>(rank)] = plan->info();
    });
    EXPECT_TRUE(SameBits(want, problem.Outputs()));
    EXPECT_THAT(texts[1], HasSubstr("rank 1 of ranks: 2"));
    EXPECT_THAT(texts[1], HasSubstr("bits: as one process (row unit 128)"));
    EXPECT_THAT(texts[1], Not(HasSubstr("0 keys each")));
    EXPECT_DOUBLE_EQ(infos[0].flops + infos[1].flops, of_one_process->info().flops);
    EXPECT_DOUBLE_EQ(infos[0].flops_full + infos[1].flops_full, of_one_process->info().flops_full);
    for (const PlanInfo& info : infos) EXPECT_GE(info.flops_visited, info.flops);
  }
}

TEST_P(RankedBackward, RanksOfDifferentInstructionSetsUseTheLowest) {
  const BackwardCase c = LongCase(DType::kBF16, 3);
  const BackwardProblem problem(c);
  const BackwardOutputs want = OutputsOf(problem, ContextOf(LowestOf(DetectIsa(), GetParam()), 1));
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    const SequenceShards shards = ShardsOf(c, Cut::kZigzag, strategy);
    problem.ForgetOutputs();
    ThreadRanks(3).Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 3), RowsOfRank(shards, shards.sk, rank, 3));
      const AttentionGradArgs args = PartOf(problem.args(), c.forward.layout, tensors);
      Context* const context = ContextOf(rank == 1 ? GetParam() : DetectIsa(), 1);
      const Status status = FlashAttentionGrad(args, problem.options(), shards, transport, context);
      ASSERT_TRUE(status.ok()) << status.message();
      tensors.Return();
    });
    EXPECT_TRUE(SameBits(want, problem.Outputs()));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RankedBackward, testing::ValuesIn(RankLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
