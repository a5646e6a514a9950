#include <gtest/gtest.h>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

CallShape Packed() {
  return {.layout = Layout::kTND, .sq = 20, .sk = 30, .cu_q = {3, 3, 12, 18}, .cu_kv = {5, 9, 9, 30}};
}

TEST(BindLengths, SequencesStartWhereTheOneBeforeEnds) {
  const auto bound = BindCall(Packed()).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const auto& sequences = bound->problem.sequences;
  ASSERT_EQ(sequences.size(), 4u);
  const int64_t want[4][4] = {{3, 5, 0, 0}, {0, 4, 3, 5}, {9, 0, 3, 9}, {6, 21, 12, 9}};
  for (size_t b = 0; b < 4; ++b) {
    EXPECT_EQ(sequences[b].sq, want[b][0]);
    EXPECT_EQ(sequences[b].sk, want[b][1]);
    EXPECT_EQ(sequences[b].q_offset, want[b][2]);
    EXPECT_EQ(sequences[b].k_offset, want[b][3]);
    EXPECT_EQ(sequences[b].rule.sq, sequences[b].sq);
    EXPECT_EQ(sequences[b].rule.sk, sequences[b].sk);
  }
  EXPECT_EQ(bound->tail_row_begin, 18);
  EXPECT_EQ(bound->tail_row_end, 20);
  EXPECT_EQ(bound->q.batch, 0);
}

TEST(BindLengths, OtherLayoutsHaveNoTailAndEqualSequences) {
  const auto bound = BindCall().Bind();
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->tail_row_begin, bound->tail_row_end);
  for (const auto& sequence : bound->problem.sequences) {
    EXPECT_EQ(sequence.sq, 7);
    EXPECT_EQ(sequence.sk, 9);
    EXPECT_EQ(sequence.q_offset, 0);
  }
}

TEST(BindLengths, RefusesBadPrefixSums) {
  BindCall call(Packed());
  call.cu_q = {3, 3, 2, 18};
  EXPECT_TRUE(Refused(call, "cu_q[2]=2, want >= 3 (cu_q[1])"));
  call.cu_q = {-1, 3, 12, 18};
  EXPECT_TRUE(Refused(call, "cu_q[0]=-1, want >= 0"));
  call.cu_q = {3, 3, 12, 21};
  EXPECT_TRUE(Refused(call, "cu_q[3]=21, want <= 20 (q.shape[0])"));
  call = BindCall(Packed());
  call.cu_kv = {5, 9, 9, 31};
  EXPECT_TRUE(Refused(call, "cu_kv[3]=31, want <= 30 (k.shape[0])"));
  call.cu_kv = {5, 9, 30};
  EXPECT_TRUE(Refused(call, "cu_kv has 3 entries, want 4 (cu_q)"));
}

TEST(BindLengths, AreRequiredForTndAndRefusedElsewhere) {
  BindCall call(Packed());
  call.cu_q.clear();
  EXPECT_TRUE(Refused(call, "cu_q: missing, want inclusive prefix sums (layout TND)"));
  call = BindCall(Packed());
  call.cu_kv.clear();
  EXPECT_TRUE(Refused(call, "cu_kv: missing, want inclusive prefix sums (layout TND)"));
  call = BindCall();
  call.cu_q = {7, 14};
  EXPECT_TRUE(Refused(call, "cu_q: given, want none (layout BNSD)"));
  call = BindCall();
  call.cu_kv = {9};
  EXPECT_TRUE(Refused(call, "cu_kv: given, want none (layout BNSD)"));
}

TEST(BindLengths, NoSequencesInNoRows) {
  const auto bound = BindCall({.layout = Layout::kTND, .sq = 0, .sk = 0}).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_TRUE(bound->problem.sequences.empty());
}

TEST(BindLengths, AllRowsMayBeTail) {
  const auto bound = BindCall({.layout = Layout::kTND, .sq = 6, .sk = 4, .cu_q = {0}, .cu_kv = {0}}).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->tail_row_begin, 0);
  EXPECT_EQ(bound->tail_row_end, 6);
}

TEST(BindLengths, StatisticsAreTimesHeads) {
  BindCall call(Packed());
  call.args.lse = BindCall::Output(DType::kF32, {20, 6, 8});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->lse.Offset(0, 2, 3), (3 * 6 + 2) * 8);
  call.args.lse.shape = {6, 20};
  EXPECT_TRUE(Refused(call, "lse.shape[1]=20, want 6 (q.shape[1])"));
  call.args.lse.shape = {1, 6, 20, 8};
  EXPECT_TRUE(Refused(call, "lse.shape=[1,6,20,8], want [T,N] or [T,N,8]"));
}

}  // namespace
}  // namespace fa::test
