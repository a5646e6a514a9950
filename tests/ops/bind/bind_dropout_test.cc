#include <gtest/gtest.h>

#include <limits>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

constexpr int64_t kBits = 2 * 6 * 7 * 9;

TEST(BindDropout, MaskNeedsABitForEveryPair) {
  BindCall call;
  call.options.keep_prob = 0.5f;
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {(kBits + 7) / 8});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_TRUE(bound->has_drop_mask);
  EXPECT_FALSE(bound->has_philox);
  EXPECT_TRUE(bound->problem.score_passes);
  EXPECT_EQ(bound->keep_prob, 0.5f);
  EXPECT_EQ(bound->dropout_offset, (std::vector<int64_t>{0, kBits / 2}));
  call.args.drop_mask.shape[0] += 100;
  EXPECT_TRUE(Binds(call));
  call.args.drop_mask.shape[0] = (kBits + 7) / 8 - 1;
  EXPECT_TRUE(Refused(call, "drop_mask.shape[0]=94, want >= 95 (a bit for each of B*N*Sq*Sk pairs)"));
}

TEST(BindDropout, RefusesOtherMasks) {
  BindCall call;
  call.args.drop_mask = BindCall::Tensor(DType::kBool, {1000});
  EXPECT_TRUE(Refused(call, "drop_mask.dtype=bool, want u8"));
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {10, 100});
  EXPECT_TRUE(Refused(call, "drop_mask.shape=[10,100], want one dimension"));
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {1000}, {2});
  EXPECT_TRUE(Refused(call, "drop_mask.stride[0]=2, want 1 (innermost)"));
}

TEST(BindDropout, AMaskAppliesEvenWhenEverythingIsKept) {
  BindCall call;
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {1000});
  EXPECT_TRUE(call.Bind()->has_drop_mask);
}

TEST(BindDropout, SeedThatKeepsEverythingCostsNothing) {
  BindCall call;
  call.options.dropout = PhiloxState{5, 6};
  EXPECT_FALSE(call.Bind()->has_philox);
  EXPECT_FALSE(call.Bind()->problem.score_passes);
  call.options.keep_prob = 0.25f;
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_TRUE(bound->has_philox);
  EXPECT_EQ(bound->philox.seed, 5u);
  EXPECT_EQ(bound->philox.offset, 6u);
  EXPECT_EQ(bound->dropout_offset.size(), 2u);
}

TEST(BindDropout, KeepProbIsInRangeAndHasASource) {
  BindCall call;
  for (const float keep_prob : {0.0f, -0.5f, 1.2f, std::numeric_limits<float>::quiet_NaN()}) {
    call.options.keep_prob = keep_prob;
    EXPECT_TRUE(Refused(call, "want more than 0 and at most 1"));
  }
  call.options.keep_prob = 0.5f;
  EXPECT_TRUE(Refused(call, "keep_prob=0.5, want drop_mask or dropout"));
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {1000});
  call.options.dropout = PhiloxState{};
  EXPECT_TRUE(Refused(call, "drop_mask: given together with dropout"));
}

TEST(BindDropout, NeedsNoSourceWithoutPairs) {
  BindCall call({.sq = 0});
  call.options.keep_prob = 0.5f;
  EXPECT_TRUE(Binds(call));
}

TEST(BindDropout, PackedBitsRunOverTheSequences) {
  BindCall call(
      {.layout = Layout::kTND, .heads = 2, .heads_kv = 2, .sq = 9, .sk = 12, .cu_q = {3, 3, 9}, .cu_kv = {4, 7, 12}});
  call.options.keep_prob = 0.5f;
  call.options.dropout = PhiloxState{};
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->dropout_offset, (std::vector<int64_t>{0, 24, 24}));
}

TEST(BindDropout, MorePairsThanAnIndexCounts) {
  BindCall call(
      {.batch = 1, .heads = 1, .heads_kv = 1, .sq = int64_t{1} << 40, .sk = (int64_t{1} << 31) - 1, .d = 1, .dv = 1});
  EXPECT_TRUE(Binds(call));
  call.options.dropout = PhiloxState{};
  call.options.keep_prob = 0.5f;
  EXPECT_TRUE(Refused(call, "q: dropout over B*N*Sq*Sk pairs wants fewer than 2^63"));
}

}  // namespace
}  // namespace fa::test
