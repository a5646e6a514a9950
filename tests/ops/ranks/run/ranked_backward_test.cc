// The backward over ranks, which are threads, against the same call in one process: bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "fa/ranked_attention.h"
#include "support/cases/random_backward_case.h"
#include "support/cases/random_forward_case.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::HasSubstr;
using testing::Not;

SequenceShards ShardsOf(const BackwardCase& c, Cut cut, Strategy strategy) {
  return {.cut = cut,
          .sq = c.forward.tensor_rows_q(),
          .sk = c.forward.tensor_rows_k(),
          .intervals = {},
          .strategy = strategy};
}

/// A gradient that all ranks write whole, in a rank's own memory.
class OwnSum {
 public:
  explicit OwnSum(const MutableTensorView& whole) : whole_(whole) {
    if (whole.data == nullptr) return;
    if (whole_.stride.empty()) whole_.stride = DenseStride(whole.shape);
    count_ = 1;
    for (int i = 0; i < whole.shape.rank(); ++i) count_ *= whole.shape[i];
    bytes_.assign(static_cast<size_t>(count_ + 1) * SizeOf(whole.dtype), '\xff');
  }
  [[nodiscard]] MutableTensorView view() {
    if (whole_.data == nullptr) return whole_;
    used_ = true;
    return {bytes_.data(), whole_.dtype, whole_.shape, {}};
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  /// Into the tensor that it is of.
  void Put() const {
    if (!used_) return;
    const size_t element = SizeOf(whole_.dtype);
    for (int64_t flat = 0; flat < count_; ++flat) {
      int64_t rest = flat, at = 0;
      for (int i = whole_.shape.rank() - 1; i >= 0; --i) {
        at += rest % whole_.shape[i] * whole_.stride[i];
        rest /= whole_.shape[i];
      }
      std::memcpy(static_cast<std::byte*>(whole_.data) + static_cast<size_t>(at) * element,
                  bytes_.data() + static_cast<size_t>(flat) * element, element);
    }
  }

 private:
  MutableTensorView whole_;
  int64_t count_ = 0;
  bool used_ = false;
  std::string bytes_;
};

/// The gradients that one rank writes whole.
struct OwnSums {
  OwnSum dsink, dslopes, dpse;
};

/// What ranks returned, and their bytes.
struct RanksRun {
  std::vector<Status> statuses;
  std::vector<OwnSums> sums;
  std::vector<std::string> plans;
};

/// Gradients of ranks that succeed go into those of `problem`.
/// @param one_row  a bias of one row is that of all queries, even where it is that of the only one
RanksRun RunRanks(const BackwardProblem& problem, const SequenceShards& shards, ThreadRanks& all, int ranks, Isa isa,
                  int threads = 1, bool one_row = false) {
  const AttentionGradArgs whole = problem.args();
  const auto count = static_cast<size_t>(ranks);
  const MutableTensorView dpse =
      problem.backward_case().forward.pse == PseForm::kRow ? whole.dpse : MutableTensorView();
  RanksRun run{std::vector<Status>(count), {}, std::vector<std::string>(count)};
  for (int rank = 0; rank < ranks; ++rank) {
    run.sums.push_back({OwnSum(whole.dsink), OwnSum(whole.dslopes), OwnSum(dpse)});
  }
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<size_t>(transport->rank());
    RankTensors tensors(RowsOfRank(shards, shards.sq, transport->rank(), ranks),
                        RowsOfRank(shards, shards.sk, transport->rank(), ranks));
    AttentionGradArgs args = PartOf(whole, problem.backward_case().forward.layout, tensors);
    args.dsink = run.sums[rank].dsink.view();
    args.dslopes = run.sums[rank].dslopes.view();
    if (dpse.data != nullptr && (one_row || args.dpse.data == whole.dpse.data)) {
      args.pse = whole.pse;
      args.dpse = run.sums[rank].dpse.view();
    }
    const auto plan = PlanFlashAttentionGrad(args, problem.options(), shards, transport, ContextOf(isa, threads));
    Status& status = run.statuses[rank];
    status = plan.ok() ? plan->Run(args) : plan.status();
    if (!status.ok()) return;
    tensors.Return();
    run.plans[rank] = plan->Describe();
  });
  return run;
}

/// A case with what one process computes.
class OneProcess {
 public:
  OneProcess(const BackwardCase& c, Isa isa) : problem_(c), isa_(isa), want_(OutputsOf(problem_, ContextOf(isa, 2))) {}

  void ExpectSameBits(const SequenceShards& shards, int ranks, int threads = 1, bool can_test = true,
                      bool one_row = false) const {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, cut " << static_cast<int>(shards.cut) << ", strategy "
                                    << static_cast<int>(shards.strategy) << ' ' << problem_.backward_case());
    problem_.ForgetOutputs();
    ThreadRanks all(ranks, can_test);
    const RanksRun run = RunRanks(problem_, shards, all, ranks, isa_, threads, one_row);
    for (const Status& status : run.statuses) ASSERT_TRUE(status.ok()) << status.message();
    for (const auto of : {&OwnSums::dsink, &OwnSums::dslopes, &OwnSums::dpse}) {
      const OwnSum& first = run.sums.front().*of;
      for (const OwnSums& sums : run.sums) EXPECT_TRUE((sums.*of).bytes() == first.bytes());
      first.Put();
    }
    EXPECT_TRUE(SameBits(want_, problem_.Outputs()));
  }

 private:
  BackwardProblem problem_;
  Isa isa_;
  BackwardOutputs want_;
};

void ExpectBitsOfOneProcess(const BackwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  OneProcess(c, isa).ExpectSameBits(shards, ranks);
}

class RankedBackward : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    for (const Isa isa : IsaLevels()) static_cast<void>(ContextOf(isa, 1));  // made before threads ask for it
  }
};

constexpr int64_t kRows = kSanitized ? 390 : 777;

BackwardCase LongCase(DType dtype, int mode) {
  BackwardCase c;
  ForwardCase& f = c.forward;
  f.dtype = dtype;
  f.heads = 4;
  f.heads_kv = 2;
  f.d = 24;
  f.dv = 16;
  f.lengths = EqualLengths(1, kRows, kRows);
  f.mask.mode = mode;
  f.mask.pre = 150;
  f.mask.next = 20;
  if (mode == 5) f.mask.prefix = {300};
  return c;
}

TEST_P(RankedBackward, HasTheBitsOfOneProcessForEveryCutAndMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int mode : {0, 3, 4, 5}) {
      BackwardCase c = LongCase(dtype, mode);
      if (dtype == DType::kBF16 && mode > 3) continue;
      if (mode == 0) c.forward.heads = c.forward.heads_kv;
      const OneProcess one(c, GetParam());
      const bool all = !kSanitized && GetParam() == DetectIsa();
      for (const int ranks : all ? std::vector{1, 2, 3, 4, 6, 7, 8} : std::vector{3}) {
        one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
        for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
          one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks);
        }
      }
    }
  }
}

// Messages arrive between blocks and not during them, or whenever they do: on one thread and on several.
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

// Columns of a block start behind each other, so that its tiles have fewer rows than those of one process.
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
    // Cuts at multiples of 128 must not part rows that kernels of pairs sum at once: sequences begin at multiples
    // of 32.
    if (dtype == DType::kBF16) c.forward.lengths = {{192, 0, 416, 32, 130}, {200, 7, 410, 5, 0}};
    c.forward.tail_q = 150;
    c.forward.tail_kv = 20;
    c.forward.sink = true;
    const OneProcess one(c, GetParam());
    for (const int ranks : {2, 4}) {
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
          one.ExpectSameBits(ShardsOf(c, cut, strategy), ranks);
        }
      }
    }
  }
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

// Rows and keys of different number: rows without keys, keys without rows.
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
    // Random cases are short: intervals cut them all the same, 16-bit rows where no kernel takes two at a time.
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
    for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
      for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
        ThreadRanks all(3);
        const RanksRun run = RunRanks(problem, ShardsOf(c, cut, strategy), all, 3, GetParam());
        for (int rank = 0; rank < 3; ++rank) {
          ASSERT_TRUE(run.statuses[static_cast<size_t>(rank)].ok());
          EXPECT_THAT(run.plans[static_cast<size_t>(rank)],
                      HasSubstr("this rank: " + std::to_string(all.sent_bytes(rank)) + " bytes sent, " +
                                std::to_string(all.received_bytes(rank)) + " bytes received"));
        }
      }
    }
  }
}

/// A sum over the batch is one of f32 in the order of the batch, whatever the type of the bias.
TEST_P(RankedBackward, WritesOwnRowsOfTheGradientOfABias) {
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
      one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 6);  // ranks without rows
    }
  }
}

TEST_P(RankedBackward, TakesABiasOfOneRowForAllQueriesWithBothStrategies) {
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

TEST_P(RankedBackward, SumsTheGradientOfOneRowForAllQueriesAsOneProcess) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int mode : {0, 3, 4}) {
      if (dtype == DType::kBF16 && mode > 3) continue;
      BackwardCase c = OneRowCase(dtype, mode);
      if (mode == 4) c.forward.heads = c.forward.heads_kv;
      if (mode == 3) c.forward.pse_type = reference::PseType::kAddThenScale;
      c.forward.sink = mode == 3;
      const OneProcess one(c, GetParam());
      const bool all = !kSanitized && GetParam() == DetectIsa();
      for (const int ranks : all ? std::vector{1, 2, 3, 4, 8} : std::vector{3}) {
        one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
        for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
          one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks, 1 + ranks % 2);
        }
      }
    }
  }
}

/// A bias that the batch shares adds its batch elements' sums in their order.
TEST_P(RankedBackward, SumsOneRowForAllQueriesOverTheBatchAndInAnyUnits) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const bool of_batch : {false, true}) {
      BackwardCase c = OneRowCase(dtype, 3);
      c.forward.lengths = EqualLengths(3, 384, 384);
      c.forward.pse_broadcast_batch = of_batch;
      c.forward.pse_f32 = dtype == DType::kF16 && of_batch;
      const OneProcess one(c, GetParam());
      SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
      shards.intervals = {{{256, 384}, {0, 128}}, {}, {{128, 256}}};
      for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
        for (const int64_t heads : {0, 1, 2}) {
          shards.strategy = strategy;
          shards.heads_in_flight = heads;
          one.ExpectSameBits(shards, 3);
          one.ExpectSameBits(shards, 3, 2, /*can_test=*/false);
        }
      }
    }
  }
}

/// Batch elements whose keys end their chains on other ranks; keys that no row keeps, and rows without keys.
TEST_P(RankedBackward, SumsOneRowForAllQueriesWhereKeysAreNotSeen) {
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

TEST_P(RankedBackward, SumsOneRowForAllQueriesOfPackedSequences) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    BackwardCase c = OneRowCase(dtype, 3);
    c.forward.layout = Layout::kTND;
    c.forward.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    c.forward.tail_q = 50;
    c.forward.tail_kv = 20;
    const OneProcess one(c, GetParam());
    for (const int ranks : {2, 4}) {
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
          one.ExpectSameBits(ShardsOf(c, cut, strategy), ranks);
        }
      }
    }
  }
}

TEST_P(RankedBackward, TakesABiasOf1024RowsWithBothStrategies) {
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

/// One process writes what one row gives, and adds it to nothing: the sign of a zero stays.
TEST_P(RankedBackward, OneRowForTheOnlyQueryIsWrittenAsInOneProcess) {
  for (const bool of_batch : {false, true}) {
    BackwardCase c = OneRowCase(DType::kF32, 0);
    c.forward.lengths = EqualLengths(2, 1, 300);
    c.forward.pse_broadcast_batch = of_batch;
    c.forward.pse_type = reference::PseType::kAddThenScale;
    c.forward.scale = -0.5f;  // times the 0 of a dropped pair
    c.forward.dense_mask = MaskForm::kPlane;
    const OneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 3, 1, true, /*one_row=*/true);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kAuto), 2);
  }
}

/// Biases lie sequence after sequence, each with the rank's own rows of it; masks of TND are whole.
TEST_P(RankedBackward, TakesBiasMaskAndSlopesOfPackedSequences) {
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

TEST_P(RankedBackward, WrongGradientsOfABiasAreOneErrorOnAllRanks) {
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

TEST_P(RankedBackward, ARankThatDiesIsAnErrorOnAllAndNobodyHangs) {
  const BackwardCase c = LongCase(DType::kF32, 0);
  const BackwardProblem problem(c);
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    for (const int64_t message : {0, 1, 3, 9}) {
      if (message == 9 && strategy == Strategy::kHeads) continue;  // it sends fewer
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

INSTANTIATE_TEST_SUITE_P(Isa, RankedBackward, testing::ValuesIn(IsaLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
