// All ranks of a forward return the same error and write nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "fa/error_text.h"
#include "ranks/run/ranked_forward.h"

namespace fa::test {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;
using testing::AnyOf;
using testing::HasSubstr;

class RankedForwardErrors : public OnRankLevels {};

TEST_P(RankedForwardErrors, OneErrorOnAllRanksNamesTheRankAndWritesNothing) {
  const ForwardCase c = LongForwardCase(DType::kF32, 3);
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
      // On every rank the error marks the names of arguments in its text, so that an interface can replace these names
      // by its own.
      const ErrorText& what = status.what();
      const std::string first = what.mentions().empty() ? "no argument" : std::string(what.Name(what.mentions()[0]));
      EXPECT_THAT(status.message(), HasSubstr("rank 2: " + first));
    }
    return statuses[0].message();
  };
  using Args = AttentionArgs;
  using Options = AttentionOptions;
  EXPECT_THAT(run([](Args& args, Options&, SequenceShards&) { args.q.shape[2] += 1; }),
              HasSubstr(Sanitized() ? "rank 2: q.shape[2]=189, want 188 (rows of this rank of 700)"
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

TEST_P(RankedForwardErrors, WrongRowsOfBiasOrMaskAreOneErrorOnAllRanks) {
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

TEST_P(RankedForwardErrors, RanksThatReadABiasOtherwiseAreOneError) {
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

// Rank 0 has one row. Its bias of one row may mean this row, or one row for all queries.
TEST_P(RankedForwardErrors, TheErrorOfABiasNamesARankThatReadsItOtherwise) {
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

// If there are many ranks, each rank's description of the call arrives in pieces. The last lines come in a later piece.
TEST_P(RankedForwardErrors, ManyRanksFindTheOneThatDiffers) {
  ForwardCase c = LongForwardCase(DType::kF32, 3);
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

TEST_P(RankedForwardErrors, RefusesWhatItDoesNotTake) {
  const ForwardCase c = LongForwardCase(DType::kF32, 3);
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
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards&) {
                args.sink = {&byte, DType::kF32, {1, 4, kForwardRows}, {}};
              }),
              HasSubstr("sink.shape=[1,4," + std::to_string(kForwardRows) + "], want [N] (over ranks)"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards&) {
                args.sink = {&byte, DType::kF32, {4}, {2}};
              }),
              HasSubstr("sink.stride[0]=2, want 1 (over ranks)"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards& own) {
                args.dense_mask = {&byte, DType::kU8, {kForwardRows, kForwardRows}, {}};
                own.strategy = Strategy::kHeads;
              }),
              HasSubstr("shards.strategy=heads, want auto or sequence: rows of dense_mask stay with their rank"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards& own) {
                args.pse = {&byte, DType::kF32, {1, 4, kForwardRows, kForwardRows}, {}};
                own.strategy = Strategy::kHeads;
              }),
              HasSubstr("shards.strategy=heads, want auto or sequence: rows of pse stay with their rank"));
  EXPECT_THAT(refused([](Args& args, Options&, SequenceShards&) {
                args.pse = {&byte, DType::kF32, {1, 4, 1023, kForwardRows}, {}};
              }),
              HasSubstr("pse.shape[2]=1023, want " + std::to_string(kForwardRows) + " (rows of this rank of " +
                        std::to_string(kForwardRows) + (kForwardRows > 1024 ? "), 1 or 1024 (compressed)" : ") or 1")));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) {
                own.cut = Cut::kIntervals;
                own.intervals = {{{0, 100}, {50, kForwardRows}}};
              }),
              HasSubstr("shards.intervals: not held once: row 50"));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) { own.cut = Cut::kIntervals; }),
              HasSubstr("shards.intervals has 0 lists, want 1 (ranks)"));
  EXPECT_THAT(refused([](Args&, Options&, SequenceShards& own) { own.sq = -1; }), HasSubstr("shards.sq=-1"));
}

TEST_P(RankedForwardErrors, ARankThatDiesIsAnErrorOnAllAndNobodyHangs) {
  const ForwardCase c = LongForwardCase(DType::kF32, 0);
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

INSTANTIATE_TEST_SUITE_P(Isa, RankedForwardErrors, testing::ValuesIn(RankLevels()),
                         [](const auto& isa) { return IsaName(isa.param); });

}  // namespace
}  // namespace fa::test
