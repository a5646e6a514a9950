// The forward over ranks, which are threads, against the same call in one process: bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "fa/rank_schedule.h"
#include "fa/ranked_attention.h"
#include "support/cases/random_forward_case.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::AnyOf;
using testing::HasSubstr;

SequenceShards ShardsOf(const ForwardCase& c, Cut cut, Strategy strategy) {
  return {.cut = cut, .sq = c.tensor_rows_q(), .sk = c.tensor_rows_k(), .intervals = {}, .strategy = strategy};
}

/// Every rank's status; outputs of ranks that succeed go into those of `problem`.
std::vector<Status> RunRanks(const ForwardProblem& problem, const SequenceShards& shards, ThreadRanks& all, int ranks,
                             Isa isa, int threads = 1) {
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  const AttentionArgs whole = problem.args();
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, ranks), RowsOfRank(shards, shards.sk, rank, ranks));
    const AttentionArgs args = PartOf(whole, problem.forward_case().layout, tensors);
    Status& status = statuses[static_cast<size_t>(rank)];
    const auto plan = PlanFlashAttention(args, problem.options(), shards, transport, ContextOf(isa, threads));
    status = plan.ok() ? plan->Run(args) : plan.status();
    if (!status.ok()) return;
    tensors.Return();
    EXPECT_TRUE(MovedBytesOfThePlan(*plan, *transport)) << plan->Describe();
    EXPECT_TRUE(StagesInTheWorkspace(*plan, transport->rank())) << plan->Describe();
  });
  return statuses;
}

/// A case with what one process computes.
class OneProcess {
 public:
  OneProcess(const ForwardCase& c, Isa isa) : problem_(c), isa_(isa), want_(OutputsOf(problem_, ContextOf(isa, 2))) {}

  void ExpectSameBits(const SequenceShards& shards, int ranks) const {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, cut " << static_cast<int>(shards.cut) << ", strategy "
                                    << static_cast<int>(shards.strategy) << ' ' << problem_.forward_case());
    problem_.ForgetOutputs();
    ThreadRanks all(ranks);
    for (const Status& status : RunRanks(problem_, shards, all, ranks, isa_)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(SameBits(want_, problem_.Outputs()));
  }

 private:
  ForwardProblem problem_;
  Isa isa_;
  ForwardOutputs want_;
};

void ExpectBitsOfOneProcess(const ForwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  OneProcess(c, isa).ExpectSameBits(shards, ranks);
}

class RankedForward : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    for (const Isa isa : IsaLevels()) static_cast<void>(ContextOf(isa, 1));  // made before threads ask for it
  }
};

constexpr int64_t kRows = kSanitized ? 700 : 1111;

ForwardCase LongCase(DType dtype, int mode) {
  ForwardCase c;
  c.dtype = dtype;
  c.heads = 4;
  c.heads_kv = 2;
  c.d = 24;
  c.dv = 16;
  c.lengths = EqualLengths(1, kRows, kRows);
  c.mask.mode = mode;
  c.mask.pre = 150;
  c.mask.next = 20;
  if (mode == 5) c.mask.prefix = {300};
  return c;
}

TEST_P(RankedForward, HasTheBitsOfOneProcessForEveryCutAndMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int mode : {0, 3, 4, 5}) {
      ForwardCase c = LongCase(dtype, mode);
      if (mode == 0) c.heads = c.heads_kv;
      const OneProcess one(c, GetParam());
      for (const int ranks : kSanitized ? std::vector{3} : std::vector{1, 2, 3, 4, 6, 8}) {
        one.ExpectSameBits(ShardsOf(c, ranks % 2 == 0 ? Cut::kContiguous : Cut::kZigzag, Strategy::kHeads), ranks);
        for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
          one.ExpectSameBits(ShardsOf(c, cut, Strategy::kSequence), ranks);
        }
      }
    }
  }
}

TEST_P(RankedForward, MovesNoKeyThatNoRowOfARankSees) {
  ForwardCase c = LongCase(DType::kF32, 3);
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
  ForwardCase c = LongCase(DType::kF32, 3);
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
    ForwardCase c = LongCase(DType::kF32, 3);
    c.layout = layout;
    c.d_rope = 8;
    c.lengths = EqualLengths(1, 140, 140);
    const OneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 3);
    }
  }
}

TEST_P(RankedForward, CutsThroughPackedSequencesAndTheirTail) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    ForwardCase c = LongCase(dtype, 3);
    c.layout = Layout::kTND;
    c.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    c.tail_q = 150;
    c.tail_kv = 20;
    for (const int ranks : {2, 4}) {
      for (const Cut cut : {Cut::kContiguous, Cut::kZigzag}) {
        for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
          ExpectBitsOfOneProcess(c, ShardsOf(c, cut, strategy), ranks, GetParam());
        }
      }
    }
  }
}

// Few rows have kernels of their own, and long keys are cut: choices that follow the whole sequence.
TEST_P(RankedForward, ChoosesKernelsByTheWholeSequence) {
  for (const int64_t sq : {int64_t{12}, int64_t{130}, int64_t{257}}) {
    ForwardCase c = LongCase(DType::kF32, 3);
    c.lengths = EqualLengths(1, sq, 1500);
    for (const int ranks : {2, 3}) {
      ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kSequence), ranks, GetParam());
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
    // Random cases are short: intervals cut them all the same, with bits that are rows' own in the forward.
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

ForwardCase BiasedCase(PseForm pse, MaskForm mask) {
  ForwardCase c = LongCase(DType::kBF16, 3);
  c.lengths = EqualLengths(2, 400, 300);
  c.pse = pse;
  if (pse != PseForm::kNone) c.pse_type = reference::PseType::kAddThenScale;
  c.dense_mask = mask;
  return c;
}

/// Every rank's bytes sent.
std::vector<int64_t> BytesSent(const ForwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  const ForwardProblem problem(c);
  ThreadRanks all(ranks);
  for (const Status& status : RunRanks(problem, shards, all, ranks, isa)) EXPECT_TRUE(status.ok()) << status.message();
  std::vector<int64_t> sent;
  for (int rank = 0; rank < ranks; ++rank) sent.push_back(all.sent_bytes(rank));
  return sent;
}

TEST_P(RankedForward, RowsOfBiasAndMaskStayWithTheirRank) {
  for (const auto& [pse, mask] : {std::pair{PseForm::kNone, MaskForm::kPlane},
                                  {PseForm::kNone, MaskForm::kPlane4d},
                                  {PseForm::kFull, MaskForm::kPerBatch},
                                  {PseForm::kFull, MaskForm::kPerHead}}) {
    ForwardCase c = BiasedCase(pse, mask);
    c.pse_broadcast_batch = mask == MaskForm::kPerBatch;
    const OneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 6);  // ranks without rows
  }
  const SequenceShards shards =
      ShardsOf(BiasedCase(PseForm::kNone, MaskForm::kNone), Cut::kZigzag, Strategy::kSequence);
  EXPECT_EQ(BytesSent(BiasedCase(PseForm::kFull, MaskForm::kPerHead), shards, 2, GetParam()),
            BytesSent(BiasedCase(PseForm::kNone, MaskForm::kNone), shards, 2, GetParam()));
}

TEST_P(RankedForward, TakesOneRowOfABiasForAllQueriesWithBothStrategies) {
  ForwardCase c = BiasedCase(PseForm::kRow, MaskForm::kNone);
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kZigzag, strategy), 2, GetParam());
  }
}

// A rank with one row of its own passes a bias of one row, whatever the others pass.
TEST_P(RankedForward, ReadsOneRowOfABiasAsTheOtherRanksDo) {
  for (const PseForm pse : {PseForm::kFull, PseForm::kRow}) {
    ForwardCase c = BiasedCase(pse, MaskForm::kNone);
    c.lengths = EqualLengths(2, 129, 300);
    ExpectBitsOfOneProcess(c, ShardsOf(c, Cut::kContiguous, Strategy::kAuto), 2, GetParam());
  }
}

TEST_P(RankedForward, TakesBiasMaskAndSlopesOfPackedSequences) {
  for (const PseForm pse : {PseForm::kFull, PseForm::kRow, PseForm::kSlopes}) {
    ForwardCase c = BiasedCase(pse, MaskForm::kPlane);
    c.layout = Layout::kTND;
    c.lengths = {{200, 0, 390, 5, 130}, {200, 7, 410, 5, 0}};
    if (pse == PseForm::kSlopes) c.pse_type = reference::PseType::kSlopes;
    const OneProcess one(c, GetParam());
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kAuto), 2);
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, Strategy::kSequence), 3);
    if (pse != PseForm::kFull) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, Strategy::kHeads), 2);
    // Intervals that a rank does not hold in their order.
    c.lengths.sk = c.lengths.sq;
    SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kAuto);
    shards.intervals = {{{384, 512}, {0, 128}}, {{640, 725}, {128, 384}, {512, 640}}};
    ExpectBitsOfOneProcess(c, shards, 2, GetParam());
  }
}

ForwardCase CompressedCase(DType dtype) {
  ForwardCase c = LongCase(dtype, 3);
  c.lengths = EqualLengths(2, 1300, 1300);
  c.pse = PseForm::kCompressed;
  c.pse_type = reference::PseType::kAddThenScale;
  c.d = c.dv = 8;
  return c;
}

/// Rows find theirs among the 1024 by their place in the whole sequence.
TEST_P(RankedForward, TakesABiasOf1024RowsWithBothStrategies) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ForwardCase c = CompressedCase(dtype);
    c.pse_f32 = c.pse_broadcast_batch = dtype == DType::kBF16;
    const OneProcess one(c, GetParam());
    for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
      for (const int ranks : {2, 3}) one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), ranks);
      // 1024 rows may be a rank's own, but not those of the other rank.
      SequenceShards shards = ShardsOf(c, Cut::kIntervals, strategy);
      shards.intervals = {{{256, 1280}}, {{0, 256}, {1280, 1300}}};
      one.ExpectSameBits(shards, 2);
    }
  }
}

TEST_P(RankedForward, TakesABiasOf1024RowsOfPackedSequences) {
  ForwardCase c = CompressedCase(DType::kF32);
  c.layout = Layout::kTND;
  c.lengths = {{300, 1200}, {300, 1200}};
  const OneProcess one(c, GetParam());
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    one.ExpectSameBits(ShardsOf(c, Cut::kContiguous, strategy), 3);
    one.ExpectSameBits(ShardsOf(c, Cut::kZigzag, strategy), 2);
  }
}

/// 1024 rows of every rank are its own: who has those of the whole call must not cut it so.
TEST_P(RankedForward, ScheduleRefusesABiasOf1024RowsWhereAllRanksHoldAsMany) {
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

TEST_P(RankedForward, RanksThatReadABiasOtherwiseAreOneError) {
  const ForwardCase c = CompressedCase(DType::kF32);
  const ForwardProblem problem(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kAuto);
  std::vector<std::string> messages(2);
  ThreadRanks(2).Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 2), RowsOfRank(shards, shards.sk, rank, 2));
    AttentionArgs args = PartOf(problem.args(), c.layout, tensors);
    if (rank == 1) args.pse.shape[2] = 1;
    messages[static_cast<size_t>(rank)] =
        FlashAttention(args, problem.options(), shards, transport, ContextOf(GetParam(), 1)).message();
  });
  EXPECT_EQ(messages, std::vector<std::string>(2,
                                               "invalid argument: rank 1: pse: has one row for all queries, want "
                                               "1024 rows (compressed) (rank 0)"));
}

TEST_P(RankedForward, WrongRowsOfBiasOrMaskAreOneErrorOnAllRanks) {
  const auto run_with = [&](MaskForm mask, const auto& spoil) {
    const ForwardCase c = BiasedCase(PseForm::kFull, mask);
    const ForwardProblem problem(c);
    const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kAuto);
    std::vector<Status> statuses(2);
    ThreadRanks(2).Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, 2), RowsOfRank(shards, shards.sk, rank, 2));
      AttentionArgs args = PartOf(problem.args(), c.layout, tensors);
      if (rank == 1) spoil(args);
      const auto* out = static_cast<const std::byte*>(args.out.data);
      statuses[static_cast<size_t>(rank)] =
          FlashAttention(args, problem.options(), shards, transport, ContextOf(GetParam(), 1));
      EXPECT_EQ(*out, std::byte{0xff});
    });
    EXPECT_EQ(statuses[0].message(), statuses[1].message());
    const ErrorText& what = statuses[0].what();
    EXPECT_THAT(what.mentions().empty() ? "" : what.Name(what.mentions().front()), AnyOf("pse", "dense_mask"));
    return statuses[0].message();
  };
  const auto run = [&](const auto& spoil) { return run_with(MaskForm::kPlane, spoil); };
  using Args = AttentionArgs;
  EXPECT_THAT(run([](Args& args) { args.pse.shape[2] += 1; }),
              HasSubstr("rank 1: pse.shape[2]=145, want 144 (rows of this rank of 400) or 1"));
  EXPECT_THAT(run([](Args& args) { args.pse.shape[2] = 1; }),
              HasSubstr("rank 1: pse: has one row for all queries, want the rows of its queries (rank 0)"));
  EXPECT_THAT(run([](Args& args) { args.pse = {}; }), HasSubstr("rank 1: pse=none, want given (rank 0)"));
  EXPECT_THAT(run([](Args& args) { args.pse.shape[3] -= 1; }), HasSubstr("rank 1: pse.shape[3]=299, want 300"));
  EXPECT_THAT(run([](Args& args) { args.dense_mask.shape[0] -= 1; }),
              HasSubstr("rank 1: dense_mask.shape[0]=143, want 144 (rows of this rank of 400)"));
  EXPECT_THAT(run([](Args& args) { args.dense_mask = {}; }), HasSubstr("rank 1: dense_mask=none, want given (rank 0)"));
  EXPECT_THAT(run([](Args& args) {
                const Dims plane = args.dense_mask.shape;
                args.dense_mask.shape = {2, 1, plane[0], plane[1]};
                args.dense_mask.stride = {0, 0, plane[1], 1};
              }),
              HasSubstr("rank 1: dense_mask.shape[0]=2, want 1 (rank 0)"));
  EXPECT_THAT(run_with(MaskForm::kPerBatch,
                       [](Args& args) {
                         args.dense_mask.shape = {2, 4, args.dense_mask.shape[2], args.dense_mask.shape[3]};
                         args.dense_mask.stride = {args.dense_mask.stride[0], 0, args.dense_mask.stride[2], 1};
                       }),
              HasSubstr("rank 1: dense_mask.shape[1]=4, want 1 (rank 0)"));
}

TEST_P(RankedForward, OneErrorOnAllRanksNamesTheRankAndWritesNothing) {
  const ForwardCase c = LongCase(DType::kF32, 3);
  const ForwardProblem problem(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  constexpr int kRanks = 3;
  const auto run = [&](const auto& spoil) {
    std::vector<Status> statuses(kRanks);
    ThreadRanks all(kRanks);
    all.Run([&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
      AttentionArgs args = PartOf(problem.args(), c.layout, tensors);
      AttentionOptions options = problem.options();
      SequenceShards own = shards;
      if (rank == 2) spoil(args, options, own);
      const auto* out = static_cast<const std::byte*>(args.out.data);
      statuses[static_cast<size_t>(rank)] = FlashAttention(args, options, own, transport, ContextOf(GetParam(), 1));
      EXPECT_EQ(*out, std::byte{0xff});
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(), statuses[0].message());
      // Every rank knows where the text speaks of arguments, to call them as its caller does.
      const ErrorText& what = status.what();
      const std::string first = what.mentions().empty() ? "no argument" : std::string(what.Name(what.mentions()[0]));
      EXPECT_THAT(status.message(), HasSubstr("rank 2: " + first));
    }
    return statuses[0].message();
  };
  using Args = AttentionArgs;
  using Options = AttentionOptions;
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.q.shape[2] += 1; }),
              HasSubstr(kSanitized ? "rank 2: q.shape[2]=189, want 188 (rows of this rank of 700)"
                                   : "rank 2: q.shape[2]=344, want 343 (rows of this rank of 1111)"));
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) {
                const int64_t row = 2 * args.q.shape[3], head = row * args.q.shape[2];
                args.q.stride = {head * args.q.shape[1], head, row, 2};
              }),
              HasSubstr("rank 2: q.stride[3]=2"));
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.v.dtype = DType::kF16; }),
              HasSubstr("rank 2: v.dtype=f16, want f32 (q.dtype)"));
  EXPECT_THAT(run([](Args&, Options& options, SequenceShards&) { options.scale = 0.5f; }),
              HasSubstr("rank 2: scale=0.5, want 0.204"));
  EXPECT_THAT(run([](Args&, Options& options, SequenceShards&) { options.mask = Mask::None(); }),
              HasSubstr("rank 2: mask.kind=0, want 1 (rank 0)"));
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.lse = {}; }),
              HasSubstr("rank 2: lse=none, want given (rank 0)"));
  EXPECT_THAT(run([](Args&, Options&, SequenceShards& own) { own.strategy = Strategy::kHeads; }),
              HasSubstr("rank 2: shards.strategy=heads, want sequence (rank 0)"));
}

// The last lines of what ranks say of a call arrive in a later piece where ranks are many.
TEST_P(RankedForward, ManyRanksFindTheOneThatDiffers) {
  ForwardCase c = LongCase(DType::kF32, 3);
  c.lengths = EqualLengths(1, 16, 16);
  const ForwardProblem problem(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  constexpr int kRanks = 100;
  std::vector<std::string> messages(kRanks);
  ThreadRanks(kRanks).Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, kRanks), RowsOfRank(shards, shards.sk, rank, kRanks));
    AttentionOptions options = problem.options();
    if (rank >= 70) options.softcap = 30;
    const AttentionArgs args = PartOf(problem.args(), c.layout, tensors);
    messages[static_cast<size_t>(rank)] =
        FlashAttention(args, options, shards, transport, ContextOf(GetParam(), 1)).message();
  });
  EXPECT_EQ(messages, std::vector<std::string>(kRanks, "invalid argument: rank 70: softcap=30, want 0 (rank 0)"));
}

// Rank 0 has one row: it can be read in both ways.
TEST_P(RankedForward, TheErrorOfABiasNamesARankThatReadsItOtherwise) {
  ForwardCase c = BiasedCase(PseForm::kFull, MaskForm::kNone);
  c.lengths = EqualLengths(1, 9, 9);
  const ForwardProblem problem(c);
  SequenceShards shards = ShardsOf(c, Cut::kIntervals, Strategy::kSequence);
  shards.intervals = {{{0, 1}}, {{1, 5}}, {{5, 9}}};
  std::vector<std::string> messages(3);
  ThreadRanks(3).Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, 9, rank, 3), RowsOfRank(shards, 9, rank, 3));
    AttentionArgs args = PartOf(problem.args(), c.layout, tensors);
    if (rank == 2) args.pse.shape[2] = 1;
    messages[static_cast<size_t>(rank)] =
        FlashAttention(args, problem.options(), shards, transport, ContextOf(GetParam(), 1)).message();
  });
  EXPECT_EQ(messages, std::vector<std::string>(3,
                                               "invalid argument: rank 2: pse: has one row for all queries, want "
                                               "the rows of its queries (rank 1)"));
}

TEST_P(RankedForward, RefusesWhatItDoesNotTake) {
  const ForwardCase c = LongCase(DType::kF32, 3);
  const ForwardProblem problem(c);
  const SequenceShards shards = ShardsOf(c, Cut::kContiguous, Strategy::kSequence);
  const auto refused = [&](const auto& change) {
    std::string message;
    ThreadRanks(1).Run([&](const std::shared_ptr<Transport>& transport) {
      AttentionArgs args = problem.args();
      AttentionOptions options = problem.options();
      SequenceShards own = shards;
      change(args, options, own);
      message = FlashAttention(args, options, own, transport, ContextOf(GetParam(), 1)).message();
    });
    return message;
  };
  static uint8_t byte = 0;
  using Args = AttentionArgs;
  using Options = AttentionOptions;
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards&) {
                args.drop_mask = {&byte, DType::kU8, {1}, {}};
              }),
              HasSubstr("drop_mask: not taken over ranks, want dropout (a seed)"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards& own) {
                args.dense_mask = {&byte, DType::kU8, {kRows, kRows}, {}};
                own.strategy = Strategy::kHeads;
              }),
              HasSubstr("shards.strategy=heads, want auto or sequence: rows of dense_mask stay with their rank"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards& own) {
                args.pse = {&byte, DType::kF32, {1, 4, kRows, kRows}, {}};
                own.strategy = Strategy::kHeads;
              }),
              HasSubstr("shards.strategy=heads, want auto or sequence: rows of pse stay with their rank"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards&) {
                args.pse = {&byte, DType::kF32, {1, 4, 1023, kRows}, {}};
              }),
              HasSubstr("pse.shape[2]=1023, want " + std::to_string(kRows) + " (rows of this rank of " +
                        std::to_string(kRows) + (kRows > 1024 ? "), 1 or 1024 (compressed)" : ") or 1")));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) {
                own.cut = Cut::kIntervals;
                own.intervals = {{{0, 100}, {50, kRows}}};
              }),
              HasSubstr("shards.intervals: not held once: row 50"));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) { own.cut = Cut::kIntervals; }),
              HasSubstr("shards.intervals has 0 lists, want 1 (ranks)"));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) { own.sq = -1; }), HasSubstr("shards.sq=-1"));
}

TEST_P(RankedForward, ARankThatDiesIsAnErrorOnAllAndNobodyHangs) {
  const ForwardCase c = LongCase(DType::kF32, 0);
  const ForwardProblem problem(c);
  for (const Strategy strategy : {Strategy::kSequence, Strategy::kHeads}) {
    for (const int64_t message : {0, 1, 3}) {
      ThreadRanks all(3);
      all.DieAtMessage(1, message);
      const auto statuses = RunRanks(problem, ShardsOf(c, Cut::kZigzag, strategy), all, 3, GetParam());
      for (const Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr("has left"));
    }
  }
}

TEST_P(RankedForward, PlansRunManyTimesAndSayWhatTheyDo) {
  const ForwardCase c = LongCase(DType::kBF16, 3);
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
    // What info() says of all ranks, Describe() says in words.
    EXPECT_THAT(texts[rank], HasSubstr("strategy " + ranks.strategy + ", " + std::to_string(ranks.units) +
                                       " units of up to " + std::to_string(ranks.heads_in_flight) + " kv heads"));
    EXPECT_THAT(texts[rank], HasSubstr("this rank: " + std::to_string(ranks.sent_bytes[rank]) + " bytes sent, " +
                                       std::to_string(ranks.received_bytes[rank]) + " bytes received, " +
                                       std::to_string(ranks.staged_bytes[rank]) + " bytes staged"));
    EXPECT_EQ(ranks.heads_in_flight, ranks.strategy == "heads" ? 1 : 2);  // all of a rank's
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
  const ForwardCase c = LongCase(DType::kBF16, 3);
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
