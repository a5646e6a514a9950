#include <gtest/gtest.h>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

BindCall WithPse(const CallShape& shape, Dims pse, DType dtype = DType::kF32, Dims stride = {}) {
  BindCall call(shape);
  call.args.pse = BindCall::Tensor(dtype, pse, stride);
  return call;
}

TEST(BindPse, FullAndBroadcastForms) {
  const struct {
    Dims shape;
    int64_t batch, head, row;
  } forms[] = {{{2, 6, 7, 9}, 378, 63, 9}, {{1, 6, 7, 9}, 0, 63, 9}, {{2, 6, 1, 9}, 54, 9, 0}, {{1, 6, 1, 9}, 0, 9, 0}};
  for (const auto& form : forms) {
    const auto bound = WithPse({}, form.shape).Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    EXPECT_TRUE(bound->has_pse);
    EXPECT_TRUE(bound->problem.score_passes);
    EXPECT_FALSE(bound->pse.compressed);
    ASSERT_EQ(bound->pse.sequences.size(), 2u);
    EXPECT_EQ(bound->pse.sequences[0].offset, 0);
    EXPECT_EQ(bound->pse.sequences[1].offset, form.batch);
    EXPECT_EQ(bound->pse.sequences[1].head, form.head);
    EXPECT_EQ(bound->pse.sequences[1].row, form.row);
  }
}

TEST(BindPse, HeadsMayBeBroadcastByStride) {
  const auto bound = WithPse({}, {2, 6, 7, 9}, DType::kF32, {100, 0, 9, 1}).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->pse.sequences[1].offset, 100);
  EXPECT_EQ(bound->pse.sequences[1].head, 0);
}

TEST(BindPse, TypeOfQueryOrF32) {
  EXPECT_TRUE(Binds(WithPse({.dtype = DType::kBF16}, {1, 6, 7, 9}, DType::kBF16)));
  EXPECT_EQ(WithPse({.dtype = DType::kBF16}, {1, 6, 7, 9}).Bind()->pse.dtype, DType::kF32);
  EXPECT_TRUE(Refused(WithPse({.dtype = DType::kBF16}, {1, 6, 7, 9}, DType::kF16),
                      "pse.dtype=f16, want bf16 (q.dtype) or f32"));
  EXPECT_TRUE(Refused(WithPse({}, {1, 6, 7, 9}, DType::kF16), "pse.dtype=f16, want f32 (q.dtype)"));
}

TEST(BindPse, RefusesOtherShapes) {
  EXPECT_TRUE(Refused(WithPse({}, {6, 7, 9}), "pse.shape=[6,7,9], want [B|1,N,Sq,Sk]"));
  EXPECT_TRUE(Refused(WithPse({}, {3, 6, 7, 9}), "pse.shape[0]=3, want 1 or 2 (batch)"));
  EXPECT_TRUE(Refused(WithPse({}, {2, 1, 7, 9}), "pse.shape[1]=1, want 6 (query heads)"));
  EXPECT_TRUE(Refused(WithPse({}, {2, 6, 8, 9}), "pse.shape[2]=8, want 7 (q.shape[2]) or 1"));
  EXPECT_TRUE(Refused(WithPse({}, {2, 6, 7, 1}), "pse.shape[3]=1, want 9 (k.shape[2])"));
  EXPECT_TRUE(Refused(WithPse({}, {2, 6, 7, 9}, DType::kF32, {0, 0, 18, 2}), "pse.stride[3]=2, want 1 (innermost)"));
}

TEST(BindPse, CompressedFormNeedsEqualLengthsAndACausalRule) {
  const CallShape square = {.heads = 2, .heads_kv = 2, .sq = 1500, .sk = 1500};
  BindCall call = WithPse(square, {1, 2, 1024, 1500});
  EXPECT_TRUE(Refused(call, "pse: the 1024-row form wants a causal mask (no key after the diagonal)"));
  for (const Mask& mask : {Mask::Causal(), Mask::CausalTopLeft(), Mask::BandTopLeft(Mask::kUnlimited, 0),
                           Mask::Band(64, 0), Mask::BandTopLeft(2000, -3)}) {
    call.options.mask = mask;
    const auto bound = call.Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    EXPECT_TRUE(bound->pse.compressed);
    EXPECT_EQ(bound->pse.sequences[1].row, 1500);
  }
  call.options.mask = Mask::BandTopLeft(Mask::kUnlimited, 1);
  EXPECT_TRUE(Refused(call, "wants a causal mask"));
  call.options.mask = Mask::Prefix({0, 5});
  EXPECT_TRUE(Refused(call, "wants a causal mask"));
  call = WithPse({.heads = 2, .heads_kv = 2, .sq = 1500, .sk = 1600}, {1, 2, 1024, 1600});
  call.options.mask = Mask::Causal();
  EXPECT_TRUE(Refused(call, "pse: the 1024-row form wants Sq == Sk, got Sq=1500, Sk=1600"));
}

TEST(BindPse, A1024RowFormOf1024RowsIsThePlainOne) {
  const auto bound = WithPse({.heads = 2, .heads_kv = 2, .sq = 1024, .sk = 1100}, {1, 2, 1024, 1100}).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_FALSE(bound->pse.compressed);
}

CallShape PackedBySums() {
  return {.layout = Layout::kTND, .heads = 2, .heads_kv = 2, .sq = 9, .sk = 12, .cu_q = {3, 3, 9}, .cu_kv = {4, 7, 12}};
}

TEST(BindPse, PackedFlatForms) {
  const auto full = WithPse(PackedBySums(), {2 * (3 * 4 + 6 * 5)}).Bind();
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_EQ(full->pse.sequences[2].offset, 24);
  EXPECT_EQ(full->pse.sequences[2].head, 30);
  EXPECT_EQ(full->pse.sequences[2].row, 5);
  const auto shared = WithPse(PackedBySums(), {2 * 12}).Bind();
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared->pse.sequences[1].offset, 8);
  EXPECT_EQ(shared->pse.sequences[2].offset, 14);
  EXPECT_EQ(shared->pse.sequences[2].head, 5);
  EXPECT_EQ(shared->pse.sequences[2].row, 0);
  EXPECT_TRUE(Refused(WithPse(PackedBySums(), {85}), "pse.shape[0]=85, want N*sum(Sq*Sk)=84 or N*sum(Sk)=24"));
  EXPECT_TRUE(Refused(WithPse(PackedBySums(), {1, 84}), "pse.shape=[1,84], want [N*sum(Sq*Sk)]"));
}

TEST(BindPse, PackedCompressedForm) {
  CallShape shape = {.layout = Layout::kTND, .heads = 2, .heads_kv = 2, .sq = 1300, .sk = 1300};
  shape.cu_q = shape.cu_kv = {100, 1300};
  for (const int64_t batch : {1, 2}) {
    BindCall call = WithPse(shape, {batch, 2, 1024, 1200});
    call.options.mask = Mask::Causal();
    const auto bound = call.Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    EXPECT_TRUE(bound->pse.compressed);
    EXPECT_EQ(bound->pse.sequences[1].offset, batch == 1 ? 0 : 2 * 1024 * 1200);
    EXPECT_EQ(bound->pse.sequences[1].head, 1024 * 1200);
  }
  BindCall call = WithPse(shape, {1, 2, 1024, 1300});
  call.options.mask = Mask::Causal();
  EXPECT_TRUE(Refused(call, "pse.shape[3]=1300, want 1200 (longest key sequence)"));
  call = WithPse(shape, {1, 2, 1000, 1200});
  EXPECT_TRUE(Refused(call, "pse.shape[2]=1000, want 1024 (compressed)"));
  call = WithPse(shape, {1, 2, 1024, 1200});
  EXPECT_TRUE(Refused(call, "wants a causal mask"));
  shape.cu_q = {99, 1300};
  call = WithPse(shape, {1, 2, 1024, 1200});
  call.options.mask = Mask::Causal();
  EXPECT_TRUE(Refused(call, "wants Sq == Sk, got Sq=99, Sk=100"));
}

BindCall WithSlopes(const CallShape& shape, Dims slopes, PseType type = PseType::kSlopes) {
  BindCall call = WithPse(shape, slopes);
  call.options.pse_type = type;
  return call;
}

TEST(BindPse, Slopes) {
  const auto shared = WithSlopes({}, {6}).Bind();
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_TRUE(shared->has_slopes);
  EXPECT_FALSE(shared->has_pse);
  EXPECT_TRUE(shared->problem.score_passes);
  EXPECT_EQ(shared->slopes.Offset(1), 0);
  const auto own = WithSlopes({}, {2, 6}, PseType::kSlopesSqrt).Bind();
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_EQ(own->slopes.Offset(1), 6);
  EXPECT_EQ(own->pse_type, PseType::kSlopesSqrt);
}

TEST(BindPse, RefusesOtherSlopes) {
  EXPECT_TRUE(Refused(WithSlopes({}, {5}), "pse.shape[0]=5, want 6 (query heads)"));
  EXPECT_TRUE(Refused(WithSlopes({}, {1, 6}), "pse.shape[0]=1, want 2 (batch)"));
  EXPECT_TRUE(Refused(WithSlopes({}, {2, 6, 1}), "pse.shape=[2,6,1], want [N] or [B,N] (slopes)"));
  BindCall call;
  call.options.pse_type = PseType::kSlopes;
  EXPECT_TRUE(Refused(call, "pse: missing, want slopes (pse_type 2)"));
  call.args.pse = BindCall::Tensor(DType::kF16, {6});
  EXPECT_TRUE(Refused(call, "pse.dtype=f16, want f32 (slopes)"));
}

TEST(BindPse, StartsApplyToEverySequenceButInModeEightToTheFirst) {
  BindCall call = WithSlopes({}, {6});
  call.options.q_start = 3;
  call.options.kv_start = -2;
  auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->q_start, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(bound->kv_start, (std::vector<int64_t>{-2, -2}));
  CallShape packed = PackedBySums();
  packed.cu_q = {0, 3, 9};
  call = WithSlopes(packed, {2});
  call.options.q_start = 3;
  call.SetSparseMode(8, 100, 5);
  bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->q_start, (std::vector<int64_t>{3, 0, 0}));
  EXPECT_EQ(bound->kv_start, (std::vector<int64_t>{0, 0, 0}));
}

TEST(BindPse, EmptyBiasOfEmptyKeys) {
  BindCall call({.sk = 0});
  call.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 0});
  EXPECT_TRUE(Binds(call));
}

}  // namespace
}  // namespace fa::test
