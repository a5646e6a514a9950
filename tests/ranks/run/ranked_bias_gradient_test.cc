// In the backward over ranks, biases and their gradients have the bits of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ranks/run/ranked_backward.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::HasSubstr;

class RankedBiasGradient : public RankedBackward {};

/// A gradient of a bias that the batch shares is summed in f32, in the order of the sequences, whatever the bias's
/// type.
TEST_P(RankedBiasGradient, WritesOwnRowsOfTheGradientOfABias) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool of_batch : {false, true}) {
      BackwardCase c = LongCase(dtype, 3);
      c.forward.lengths = EqualLengths(2, 300, 200);
      c.forward.pse = PseForm::kFull;
      c.forward.pse_type = reference::PseType::kScaleThenAdd;
      c.forward.pse_broadcast_batch = of_batch;
      c.forward.dense_mask = MaskForm::kPerHead;
      const OneProcess one(c, GetParam());
      one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
      one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 6);  // some ranks have no rows
    }
  }
}

TEST_P(RankedBiasGradient, TakesABiasOfOneRowForAllQueriesWithBothStrategies) {
  BackwardCase c = LongCase(DType::kBF16, 0);
  c.forward.lengths = EqualLengths(2, 300, 300);
  c.forward.pse = PseForm::kRow;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  c.optional_gradients = false;
  const OneProcess one(c, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 2);
  }
}

BackwardCase OneRowCase(DType dtype, int mode) {
  BackwardCase c = LongCase(dtype, mode);
  c.forward.pse = PseForm::kRow;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  return c;
}

TEST_P(RankedBiasGradient, SumsTheGradientOfOneRowForAllQueriesAsOneProcess) {
  const auto check = [&](DType dtype, int mode) {
    if (dtype == DType::kBF16 && mode > 3) return;
    BackwardCase c = OneRowCase(dtype, mode);
    if (mode == 4) c.forward.heads = c.forward.heads_kv;
    if (mode == 3) c.forward.pse_type = reference::PseType::kAddThenScale;
    c.forward.sink = mode == 3;
    const OneProcess one(c, GetParam());
    const bool all = !Sanitized() && GetParam() == DetectIsa();
    for (const int ranks : all ? std::vector{1, 2, 3, 4, 8} : std::vector{3}) {
      one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks, 1 + ranks % 2);
      }
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kBF16}}, Axis{"mode", {0, 3, 4}});
}

/// A gradient of a bias that the batch shares adds up the sums of the sequences in their order.
TEST_P(RankedBiasGradient, SumsOneRowForAllQueriesOverTheBatchAndInAnyUnits) {
  const auto check = [&](DType dtype, bool of_batch) {
    BackwardCase c = OneRowCase(dtype, 3);
    c.forward.lengths = EqualLengths(3, 384, 384);
    c.forward.pse_broadcast_batch = of_batch;
    c.forward.pse_f32 = dtype == DType::kF16 && of_batch;
    const OneProcess one(c, GetParam());
    SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
    shards.intervals = {{{256, 384}, {0, 128}}, {}, {{128, 256}}};
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      for (const int64_t heads : Sanitized() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0, 1, 2}) {
        shards.strategy = strategy;
        shards.heads_in_flight = heads;
        one.ExpectSameBits(shards, 3);
        one.ExpectSameBits(shards, 3, 2, /*can_test=*/false);
      }
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kF16}}, Axis{"of_batch", {false, true}});
}

/// The chain of a key may end on another rank in each sequence. Some keys are kept by no row, and some rows have no
/// keys.
TEST_P(RankedBiasGradient, SumsOneRowForAllQueriesWhereKeysAreNotSeen) {
  BackwardCase c = OneRowCase(DType::kF32, 5);
  c.forward.lengths = EqualLengths(3, 400, 700);
  c.forward.mask.prefix = {0, 600, 130};
  c.forward.pse_broadcast_batch = true;
  const OneProcess prefix(c, GetParam());
  BackwardCase band = OneRowCase(DType::kBF16, 2);
  band.forward.lengths = EqualLengths(2, 600, 1000);
  band.forward.mask.pre = -100;
  band.forward.mask.next = 300;
  const OneProcess of_band(band, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    prefix.ExpectSameBits(ShardsOf(c, Cut::kContiguous, strategy), 3);
    of_band.ExpectSameBits(ShardsOf(band, Cut::kContiguous, strategy), 3);
    of_band.ExpectSameBits(ShardsOf(band, Cut::kZigzag, strategy), 2);
  }
}

TEST_P(RankedBiasGradient, SumsOneRowForAllQueriesOfPackedSequences) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    BackwardCase c = OneRowCase(dtype, 3);
    c.forward.layout = Layout::kTND;
    c.forward.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    c.forward.tail_q = 50;
    c.forward.tail_kv = 20;
    const OneProcess one(c, GetParam());
    ForEachCase([&](int ranks, Cut cut, Strategy s) { one.ExpectSameBits(ShardsOf(c, cut, s), ranks); },
                Axis{"ranks", Sanitized() ? std::vector{4} : std::vector{2, 4}},
                Axis{"cut", {Cut::kContiguous, Cut::kZigzag}},
                Axis{"strategy", {Strategy::kSequence, Strategy::kHeads}});
  }
}

TEST_P(RankedBiasGradient, TakesABiasOf1024RowsWithBothStrategies) {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.lengths = EqualLengths(1, 1300, 1300);
  c.forward.d = c.forward.dv = 8;
  c.forward.pse = PseForm::kCompressed;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  const OneProcess one(c, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, strategy), 3);
  }
}

/// With one query, one process writes the row's gradient without an addition, so the sign of a zero stays.
TEST_P(RankedBiasGradient, OneRowForTheOnlyQueryIsWrittenAsInOneProcess) {
  for (const bool of_batch : {false, true}) {
    BackwardCase c = OneRowCase(DType::kF32, 0);
    c.forward.lengths = EqualLengths(2, 1, 300);
    c.forward.pse_broadcast_batch = of_batch;
    c.forward.pse_type = reference::PseType::kAddThenScale;
    c.forward.scale = -0.5f;  // so that a dropped pair gives -0
    c.forward.dense_mask = MaskForm::kPlane;
    const OneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 3, 1, true, /*one_row=*/true);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kAuto), 2);
  }
}

/// The biases of packed sequences lie one after another. A rank passes its own rows of each bias, but the whole TND
/// mask.
TEST_P(RankedBiasGradient, TakesBiasMaskAndSlopesOfPackedSequences) {
  for (const PseForm form : {PseForm::kFull, PseForm::kSlopes}) {
    BackwardCase c = LongCase(DType::kF32, 3);
    ForwardCase& f = c.forward;
    f.layout = Layout::kTND;
    f.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    f.pse = form;
    f.pse_type = form == PseForm::kSlopes ? reference::PseType::kSlopes : reference::PseType::kAddThenScale;
    f.dense_mask = MaskForm::kPlane;
    const OneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 3);
    if (form == PseForm::kSlopes) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kHeads), 2);
  }
}

TEST_P(RankedBiasGradient, WrongGradientsOfABiasAreOneErrorOnAllRanks) {
  BackwardCase c = LongCase(DType::kF32, 3);
  c.forward.lengths = EqualLengths(2, 300, 300);
  c.forward.pse = PseForm::kFull;
  c.forward.pse_type = reference::PseType::kAddThenScale;
  const BackwardProblem full(c);
  c.forward.pse = PseForm::kRow;
  const BackwardProblem row(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kAuto);
  constexpr int kRanks = 2;
  const auto run = [&](const BackwardProblem& problem, const auto& spoil) {
    std::vector<Status> statuses(kRanks);
    ThreadRanks all(kRanks);
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
      AttentionGradArgs args = PartOf(problem.args(), c.forward.layout, tensors);
      if (rank == 1) spoil(args);
      const auto* dq = static_cast<const std::byte*>(args.dq.data);
      statuses[static_cast<size_t>(rank)] =
          FlashAttentionGrad(args, problem.options(), shards, transport, ContextOf(GetParam(), 1));
      EXPECT_EQ(*dq, std::byte{0xff});
    });
    EXPECT_EQ(statuses[0].message(), statuses[1].message());
    return statuses[0].message();
  };
  using Args = AttentionGradArgs;
  EXPECT_THAT(run(full, [](Args& args) { args.dpse.shape[2] -= 1; }),
              HasSubstr("rank 1: dpse.shape[2]=171, want 172 (pse.shape[2])"));
  EXPECT_THAT(run(full,
                  [](Args& args) {
                    args.dpse.stride = {0, 0, 300, 1};
                  }),
              HasSubstr("rank 1: dpse.stride=[0,0,300,1], want strides that keep its elements apart"));
  EXPECT_THAT(run(full, [](Args& args) { args.dpse = {}; }), HasSubstr("rank 1: dpse=none, want given (rank 0)"));
  EXPECT_THAT(run(row, [](Args& args) { args.dpse = {}; }), HasSubstr("rank 1: dpse=none, want given (rank 0)"));
  EXPECT_THAT(run(row, [](Args& args) { args.dpse.shape[2] = 2; }),
              HasSubstr("rank 1: dpse.shape[2]=2, want 1 (pse.shape[2])"));
}

INSTANTIATE_TEST_SUITE_P(Isa, RankedBiasGradient, testing::ValuesIn(RankLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
