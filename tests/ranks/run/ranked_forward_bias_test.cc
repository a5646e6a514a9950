// Tests biases, slopes and masks of the forward over ranks. Each rank passes its own rows, and the outputs have the
// bits of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fa/rank_schedule.h"
#include "ranks/run/ranked_forward.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::HasSubstr;

class RankedForwardBias : public OnRankLevels {};

/// Returns the bytes that each rank sends.
std::vector<int64_t> BytesSent(const ForwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  const ForwardProblem problem(c);
  ThreadRanks all(ranks);
  for (const Status& status : RunRanks(problem, shards, all, ranks, isa)) EXPECT_TRUE(status.ok()) << status.message();
  std::vector<int64_t> sent;
  for (int rank = 0; rank < ranks; ++rank) sent.push_back(all.sent_bytes(rank));
  return sent;
}

TEST_P(RankedForwardBias, RowsOfBiasAndMaskStayWithTheirRank) {
  for (const auto& [pse, mask] : {std::pair{PseForm::kNone, MaskForm::kPlane},
                                  {PseForm::kNone, MaskForm::kPlane4d},
                                  {PseForm::kFull, MaskForm::kPerBatch},
                                  {PseForm::kFull, MaskForm::kPerHead}}) {
    ForwardCase c = BiasedCase(pse, mask);
    c.pse_broadcast_batch = mask == MaskForm::kPerBatch;
    const ForwardOfOneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 6);  // some ranks have no rows
  }
  const SequenceShards shards =
      ShardsOf(BiasedCase(PseForm::kNone, MaskForm::kNone), Cut::kZigzag, Strategy::kSequence);
  EXPECT_EQ(BytesSent(BiasedCase(PseForm::kFull, MaskForm::kPerHead), shards, 2, GetParam()),
            BytesSent(BiasedCase(PseForm::kNone, MaskForm::kNone), shards, 2, GetParam()));
}

TEST_P(RankedForwardBias, TakesOneRowOfABiasForAllQueriesWithBothStrategies) {
  ForwardCase c = BiasedCase(PseForm::kRow, MaskForm::kNone);
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kZigzag, strategy), 2, GetParam());
  }
}

// A rank that holds one row passes a bias of one row, even if the other ranks pass more rows.
TEST_P(RankedForwardBias, ReadsOneRowOfABiasAsTheOtherRanksDo) {
  for (const PseForm pse : {PseForm::kFull, PseForm::kRow}) {
    ForwardCase c = BiasedCase(pse, MaskForm::kNone);
    c.lengths = EqualLengths(2, 129, 300);
    ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kAuto), 2, GetParam());
  }
}

TEST_P(RankedForwardBias, TakesBiasMaskAndSlopesOfPackedSequences) {
  for (const PseForm pse : {PseForm::kFull, PseForm::kRow, PseForm::kSlopes}) {
    ForwardCase c = BiasedCase(pse, MaskForm::kPlane);
    c.layout = Layout::kTND;
    c.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    if (pse == PseForm::kSlopes) c.pse_type = reference::PseType::kSlopes;
    const ForwardOfOneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 3);
    if (pse != PseForm::kFull) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kHeads), 2);
    // The intervals of a rank are not in ascending order.
    c.lengths.sk = c.lengths.sq;
    SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kAuto);
    shards.intervals = {{{384, 512}, {0, 128}}, {{640, 725}, {128, 384}, {512, 640}}};
    ExpectBitsOfOneProcess(c, shards, 2, GetParam());
  }
}

/// A compressed bias has 1024 rows. A query's row of the bias follows from its place in the whole sequence.
TEST_P(RankedForwardBias, TakesABiasOf1024RowsWithBothStrategies) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ForwardCase c = CompressedCase(dtype);
    c.pse_f32 = c.pse_broadcast_batch = dtype == DType::kBF16;
    const ForwardOfOneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      for (const int ranks : {2, 3}) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), ranks);
      // One rank may have exactly 1024 rows if the other rank has another number.
      SequenceShards shards = ShardsOf(c, Cut::kIntervals, strategy);
      shards.intervals = {{{256, 1280}}, {{0, 256}, {1280, 1300}}};
      one.ExpectSameBits(shards, 2);
    }
  }
}

TEST_P(RankedForwardBias, TakesABiasOf1024RowsOfPackedSequences) {
  ForwardCase c = CompressedCase(DType::kF32);
  c.layout = Layout::kTND;
  c.lengths = {{300, 1200}, {300, 1200}};
  const ForwardOfOneProcess one(c, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, strategy), 3);
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 2);
  }
}

/// In the whole call, a bias of 1024 rows is a compressed bias. A rank with 1024 rows would take it for the bias of the
/// rank's own rows. So a schedule made from the whole call refuses to give 1024 rows to every rank.
TEST_P(RankedForwardBias, ScheduleRefusesABiasOf1024RowsWhereAllRanksHoldAsMany) {
  static uint8_t byte = 0;
  const Dims rows{1, 1, 2048, 8};
  AttentionArgs args;
  for (TensorView* tensor : {&args.q, &args.k, &args.v}) *tensor = {&byte, DType::kF32, rows, {}};
  args.out = {&byte, DType::kF32, rows, {}};
  args.pse = {&byte, DType::kF32, {1, 1, 1024, 2048}, {}};
  AttentionOptions options;
  options.layout = Layout::kBNSD;
  options.mask = Mask::Causal();
  options.pse_type = PseType::kAddThenScale;
  const auto schedule = [&](int ranks) {
    const SequenceShards shards{.cut = Cut::kContiguous, .sq = 2048, .sk = 2048, .intervals = {}};
    return ScheduleFlashAttention(args, options, shards, {.ranks = ranks}, ContextOf(GetParam(), 1));
  };
  EXPECT_THAT(schedule(2).status().message(),
              HasSubstr("pse: the 1024-row form is not taken where every rank holds 1024 rows, want another cut"));
  EXPECT_TRUE(schedule(3).ok()) << schedule(3).status().message();
}

INSTANTIATE_TEST_SUITE_P(Isa, RankedForwardBias, testing::ValuesIn(RankLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
