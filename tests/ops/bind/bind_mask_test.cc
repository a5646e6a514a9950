#include <gtest/gtest.h>

#include <limits>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(BindMask, AcceptsEveryFormOfADenseMask) {
  const struct {
    Dims shape;
    int64_t batch, head;
  } forms[] = {{{7, 9}, 0, 0}, {{1, 1, 7, 9}, 0, 0}, {{2, 1, 7, 9}, 63, 0}, {{2, 6, 7, 9}, 378, 63}};
  for (const auto& form : forms) {
    for (const DType dtype : {DType::kU8, DType::kBool, DType::kI8}) {
      BindCall call;
      call.args.dense_mask = BindCall::Tensor(dtype, form.shape);
      const auto bound = call.Bind();
      ASSERT_TRUE(bound.ok()) << bound.status().message();
      EXPECT_TRUE(bound->has_dense_mask);
      EXPECT_TRUE(bound->problem.dense_mask);
      EXPECT_FALSE(bound->problem.score_passes);
      ASSERT_EQ(bound->dense_mask.sequences.size(), 2U);
      EXPECT_EQ(bound->dense_mask.Offset(0), 0);
      EXPECT_EQ(bound->dense_mask.Offset(1), form.batch);
      EXPECT_EQ(bound->dense_mask.Of(1).head, form.head);
      EXPECT_EQ(bound->dense_mask.Of(1).row, 9);
    }
  }
}

TEST(BindMask, RefusesOtherDenseMasks) {
  BindCall call;
  call.args.dense_mask = BindCall::Tensor(DType::kU8, {7, 8});
  EXPECT_TRUE(Refused(call, "dense_mask.shape[1]=8, want 9 (k.shape[2])"));
  call.args.dense_mask.shape = {8, 9};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[0]=8, want 7 (q.shape[2])"));
  call.args.dense_mask.shape = {3, 1, 7, 9};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[0]=3, want 2 (q.shape[0])"));
  call.args.dense_mask.shape = {1, 6, 7, 9};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[0]=1, want 2 (q.shape[0])"));
  call.args.dense_mask.shape = {2, 3, 7, 9};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[1]=3, want 1 or 6 (query heads)"));
  call.args.dense_mask.shape = {2, 7, 9};
  EXPECT_TRUE(Refused(call, "dense_mask.shape=[2,7,9], want [Sq,Sk]"));
  call.args.dense_mask = BindCall::Tensor(DType::kF32, {7, 9});
  EXPECT_TRUE(Refused(call, "dense_mask.dtype=f32, want u8, bool or i8"));
  call.args.dense_mask = BindCall::Tensor(DType::kU8, {7, 9}, {18, 2});
  EXPECT_TRUE(Refused(call, "dense_mask.stride[1]=2, want 1 (innermost)"));
}

TEST(BindMask, PackedDenseMaskHasTheLongestLengths) {
  BindCall call({.layout = Layout::kTND, .sq = 12, .sk = 10, .cu_q = {3, 12}, .cu_kv = {6, 10}});
  call.args.dense_mask = BindCall::Tensor(DType::kU8, {9, 6});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->dense_mask.Of(1).row, 6);
  EXPECT_EQ(bound->dense_mask.Offset(1), 0);
  call.args.dense_mask.shape = {12, 6};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[0]=12, want 9 (longest query sequence)"));
  call.args.dense_mask.shape = {9, 10};
  EXPECT_TRUE(Refused(call, "dense_mask.shape[1]=10, want 6 (longest key sequence)"));
  call.args.dense_mask.shape = {1, 1, 9, 6};
  EXPECT_TRUE(Refused(call, "dense_mask.shape=[1,1,9,6], want [maxSq,maxSk]"));
}

TEST(BindMask, ListedRowsAreThoseOfEveryElementOrOfAll) {
  BindCall call({.batch = 2, .sq = 2, .sk = 9});
  call.options.mask = Mask::Rows({0, 3}, {4, 20});
  auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  for (const tiling::Sequence& sequence : bound->problem.sequences) {
    EXPECT_EQ(sequence.rule.Keys(0), (tiling::Interval{0, 4}));
    EXPECT_EQ(sequence.rule.Keys(1), (tiling::Interval{3, 9}));
  }
  EXPECT_EQ(bound->problem.sequences[0].rule, bound->problem.sequences[1].rule);
  call.options.mask = Mask::Rows({0, 3, 2, 2}, {4, 20, 5, 6});
  bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->problem.sequences[0].rule.Keys(1), (tiling::Interval{3, 9}));
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(0), (tiling::Interval{2, 5}));

  BindCall packed({.layout = Layout::kTND, .sq = 4, .sk = 10, .cu_q = {1, 3}, .cu_kv = {6, 10}});
  packed.options.mask = Mask::Rows({1, 0, 3, 0}, {6, 1, 6, 0});
  bound = packed.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->problem.sequences[0].rule.Keys(0), (tiling::Interval{1, 6}));
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(1), (tiling::Interval{3, 4}));
}

TEST(BindMask, RefusesListsOfOtherLengthsAndRowsThatGoBack) {
  BindCall call({.batch = 2, .sq = 2, .sk = 9});
  call.options.mask = Mask::Rows({0, 3, 2}, {4, 20, 5});
  EXPECT_TRUE(Refused(call, "mask.row_begin has 3 entries, want 2 (q.shape[2]) or batch times that"));
  call.options.mask = Mask::Rows({0, 3}, {4, 20, 5});
  EXPECT_TRUE(Refused(call, "mask.row_end has 3 entries, want 2 (mask.row_begin)"));
  call.options.mask = Mask::Rows({0, 0, 1, 0}, {4, 4, 4, 5});
  EXPECT_TRUE(Refused(call, "mask.row_begin[3]=0, want >= 1 (an earlier row)"));
  call.options.mask = Mask::Rows({0, 0, 0, 0}, {4, 3, 4, 5});
  EXPECT_TRUE(Refused(call, "mask.row_end[1]=3, want >= 4 (an earlier row)"));
  call.options.mask = Mask::Rows({0, -1}, {4, 2});
  EXPECT_TRUE(Refused(call, "mask.row_end[1]=2, want >= 4 (an earlier row)")) << "a begin before key 0 is key 0";
  call = BindCall({.sq = 3, .sk = 9});
  call.options.mask = Mask::Rows({0, 0, 2}, {4, 0, 5});
  EXPECT_TRUE(Refused(call, "mask.row_begin[2]=2, want >= 4 (an earlier row)")) << "behind a row without keys";
  BindCall packed({.layout = Layout::kTND, .sq = 4, .sk = 10, .cu_q = {1, 3}, .cu_kv = {6, 10}});
  packed.options.mask = Mask::Rows({0, 0}, {1, 1});
  EXPECT_TRUE(Refused(packed, "mask.row_begin has 2 entries, want 4 (q.shape[0])"));
}

TEST(BindMask, ConstructorsTakeAnyIntegers) {
  for (const int64_t pre : {kMin, int64_t{-5}, int64_t{0}, Mask::kUnlimited}) {
    for (const int64_t next : {kMin, int64_t{-5}, int64_t{0}, Mask::kUnlimited}) {
      BindCall call;
      call.options.mask = Mask::Band(pre, next);
      EXPECT_TRUE(Binds(call)) << pre << " " << next;
      call.options.mask = Mask::BandTopLeft(pre, next);
      EXPECT_TRUE(Binds(call)) << pre << " " << next;
    }
  }
  BindCall call;
  call.options.mask = Mask::Prefix({kMin, Mask::kUnlimited});
  EXPECT_TRUE(Binds(call));
}

TEST(BindMask, RulesFollowTheMask) {
  BindCall call;
  call.options.mask = Mask::Causal();
  auto bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(0), (tiling::Interval{0, 3}));
  call.options.mask = Mask::Prefix({0, 6});
  bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->problem.sequences[0].rule.Keys(0), (tiling::Interval{0, 3}));
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(0), (tiling::Interval{0, 6}));
}

TEST(BindMask, ChunkModesBendTheFirstOrLastSequenceWithRows) {
  const CallShape shape = {
      .layout = Layout::kTND, .sq = 6, .sk = 14, .cu_q = {0, 2, 4, 6, 6}, .cu_kv = {1, 5, 9, 13, 14}};
  BindCall call(shape);
  call.SetSparseMode(7, 100, -1);
  auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(0), (tiling::Interval{0, 3}));
  EXPECT_EQ(bound->problem.sequences[3].rule.Keys(0), (tiling::Interval{0, 2}));
  call.SetSparseMode(8, 100, 1);
  bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->problem.sequences[1].rule.Keys(0), (tiling::Interval{0, 4}));
  EXPECT_EQ(bound->problem.sequences[3].rule.Keys(0), (tiling::Interval{0, 1}));
}

TEST(BindMask, PrefixHasOneEntryASequence) {
  BindCall call;
  call.options.mask = Mask::Prefix({1, 2, 3});
  EXPECT_TRUE(Refused(call, "mask.prefix has 3 entries, want 2 (q.shape[0])"));
  call.options.mask = Mask::Prefix({});
  EXPECT_TRUE(Refused(call, "mask.prefix: missing, want 2 entries (q.shape[0])"));
  call = BindCall({.layout = Layout::kTND, .sq = 12, .sk = 10, .cu_q = {3, 12}, .cu_kv = {6, 10}});
  call.options.mask = Mask::Prefix({1});
  EXPECT_TRUE(Refused(call, "mask.prefix has 1 entries, want 2 (number of sequences)"));
}

TEST(BindMask, CompressedMaskIsReplacedByItsRule) {
  BindCall call({.sq = 2048, .sk = 2048});
  call.args.dense_mask = BindCall::Tensor(DType::kBool, {1, 1, 2048, 2048});
  call.SetSparseMode(3);
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_FALSE(bound->has_dense_mask);
  EXPECT_FALSE(bound->problem.dense_mask);
  EXPECT_EQ(bound->compressed_mask_mode, 3);
}

TEST(BindMask, CompressedMaskHasOneShape) {
  BindCall call;
  call.args.dense_mask = BindCall::Tensor(DType::kBool, {7, 9});
  for (const int64_t mode : {2, 3, 4}) {
    call.SetSparseMode(mode, 100, 100);
    EXPECT_TRUE(Refused(
        call, "dense_mask.shape=[7,9], want [2048,2048] (compressed, sparse_mode " + std::to_string(mode) + ")"));
  }
  call.SetSparseMode(6, 0, 0, {9, 9});
  EXPECT_TRUE(Refused(call, "dense_mask.shape=[7,9], want [3072,2048] (compressed, sparse_mode 6)"));
  call.args.dense_mask.shape = {2, 1, 2048, 2048};
  call.SetSparseMode(3);
  EXPECT_TRUE(Refused(call, "want [2048,2048]"));
  call.args.dense_mask.shape = {3072, 2048};
  call.SetSparseMode(6, 0, 0, {9, 9});
  EXPECT_TRUE(Binds(call));
}

TEST(BindMask, ModeZeroWasToldWhetherThereIsAMask) {
  BindCall call;
  call.SetSparseMode(0);
  call.args.dense_mask = BindCall::Tensor(DType::kU8, {7, 9});
  EXPECT_TRUE(Refused(call, "dense_mask: given, but sparse_mode 0 was made without dense_mask_given"));
  call.SetSparseMode(0);
  EXPECT_TRUE(Binds(call));
  call.args.dense_mask = {};
  EXPECT_TRUE(Refused(call, "dense_mask: missing, but sparse_mode 0 was made with dense_mask_given"));
}

}  // namespace
}  // namespace fa::test
