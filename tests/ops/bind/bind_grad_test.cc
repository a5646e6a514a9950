#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bind_grad_call.h"
#include "layout/bind_layout.h"
#include "ops/bind/bind_attention_grad.h"

namespace fa::test {
namespace {

template <typename Change>
GradCall With(Change change, const CallShape& shape = {}) {
  GradCall call(shape);
  change(call.args);
  return call;
}

class GradOfEveryLayout : public ::testing::TestWithParam<Layout> {
 protected:
  static CallShape Shape() {
    CallShape shape = GetParam() == Layout::kTND ? PackedShape() : CallShape{};
    shape.layout = GetParam();
    return shape;
  }
};

TEST_P(GradOfEveryLayout, GradientsLieAsTheirTensors) {
  const GradCall call(Shape());
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const ops::BoundAttention& forward = bound->forward;
  const std::pair<layout::Rows, layout::Rows> same[] = {
      {bound->d_out, forward.out}, {bound->dq, forward.q}, {bound->dk, forward.k}, {bound->dv, forward.v}};
  for (const auto& [gradient, tensor] : same) {
    EXPECT_EQ(gradient.dtype, tensor.dtype);
    EXPECT_EQ(gradient.Offset(1, 2, 3), tensor.Offset(1, 2, 3));
  }
  EXPECT_EQ(forward.problem.d, 16);
  EXPECT_EQ(forward.problem.dv, 8);
  EXPECT_TRUE(forward.has_max);
  EXPECT_TRUE(forward.has_sum);
  EXPECT_FALSE(forward.has_lse);
  EXPECT_FALSE(bound->has_dpse || bound->has_dslopes || bound->has_dsink);
}

TEST_P(GradOfEveryLayout, GradientsHaveTheirOwnStrides) {
  GradCall call(Shape());
  // Every stride except the innermost doubles.
  Dims stride = layout::FilledStride(call.args.dk.shape, {});
  for (int i = 0; i + 1 < stride.rank(); ++i) stride[i] *= 2;
  call.args.dk.stride = stride;
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->dk.row, 2 * bound->forward.k.row);
  EXPECT_EQ(bound->dk.batch, 2 * bound->forward.k.batch);
}

TEST_P(GradOfEveryLayout, RopeGradientsLieAsTheirTensors) {
  const CallShape shape = Shape();
  BindCall forward(shape);
  forward.args.q_rope = forward.args.q;
  forward.args.k_rope = forward.args.k;
  const GradCall call(forward);
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_TRUE(bound->forward.has_rope);
  EXPECT_EQ(bound->dq_rope.Offset(1, 2, 3), bound->forward.q_rope.Offset(1, 2, 3));
  EXPECT_EQ(bound->dk_rope.Offset(1, 2, 3), bound->forward.k_rope.Offset(1, 2, 3));
}

TEST_P(GradOfEveryLayout, RefusesEveryWrongSizeOfEveryGradient) {
  const auto refuses_changed_sizes = [](const char* name, auto member) {
    const GradCall good(Shape());
    for (int i = 0; i < (good.args.*member).shape.rank(); ++i) {
      GradCall call(Shape());
      (call.args.*member).shape[i] += 1;
      const std::string dim = "[" + std::to_string(i) + "]";
      EXPECT_TRUE(Refused(call, name + (".shape" + dim) + "=" + std::to_string((call.args.*member).shape[i]) +
                                    ", want " + std::to_string((good.args.*member).shape[i])));
    }
  };
  refuses_changed_sizes("d_out", &AttentionGradArgs::d_out);
  refuses_changed_sizes("dq", &AttentionGradArgs::dq);
  refuses_changed_sizes("dk", &AttentionGradArgs::dk);
  refuses_changed_sizes("dv", &AttentionGradArgs::dv);
}

INSTANTIATE_TEST_SUITE_P(BindGrad, GradOfEveryLayout,
                         ::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND,
                                           Layout::kBNSD_BSND),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(BindGrad, NamesTensorIndexGotWantAndSource) {
  EXPECT_TRUE(Refused(With([](auto& args) { args.d_out.shape[2] = 5; }), "d_out.shape[2]=5, want 7 (out.shape[2])"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dq.shape[3] = 5; }), "dq.shape[3]=5, want 16 (q.shape[3])"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dk.shape[1] = 6; }), "dk.shape[1]=6, want 3 (k.shape[1])"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dv.shape[3] = 16; }), "dv.shape[3]=16, want 8 (v.shape[3])"));
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.dq.shape = {2, 7, 96};
                      }),
                      "dq.shape=[2,7,96], want [2,6,7,16] (q.shape)"));
  GradCall out_is_bsnd({.layout = Layout::kBNSD_BSND});
  out_is_bsnd.args.d_out.shape = {2, 6, 7, 8};
  EXPECT_TRUE(Refused(out_is_bsnd, "d_out.shape[1]=6, want 7 (out.shape[1])"));
}

TEST(BindGrad, TheForwardsErrorsAreErrors) {
  EXPECT_TRUE(Refused(With([](auto& args) { args.k.shape[3] = 5; }), "k.shape[3]=5, want 16 (q.shape[3])"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.out.shape[3] = 5; }), "out.shape[3]=5, want 8 (v.shape[3])"));
  EXPECT_TRUE(
      Refused(With([](auto& args) { args.softmax_sum.shape[2] = 9; }), "softmax_sum.shape[2]=9, want 7 (q.shape[2])"));
  EXPECT_TRUE(
      Refused(With([](auto& args) { args.softmax_max.dtype = DType::kF16; }), "softmax_max.dtype=f16, want f32"));
  GradCall call;
  call.options.keep_prob = 0.5f;
  EXPECT_TRUE(Refused(call, "keep_prob=0.5, want drop_mask or dropout"));
  call.options.keep_prob = 1.5f;
  EXPECT_TRUE(Refused(call, "keep_prob=1.5, want more than 0 and at most 1"));
  call.options.keep_prob = 0.5f;
  call.options.dropout = PhiloxState{.seed = 3, .offset = 4};
  EXPECT_TRUE(Runs(call));
  EXPECT_TRUE(call.Bind()->forward.has_philox);
  call.args.drop_mask = BindCall::Tensor(DType::kU8, {95});
  EXPECT_TRUE(Refused(call, "drop_mask: given together with dropout"));
  call.options.dropout.reset();
  EXPECT_TRUE(Runs(call));
  EXPECT_TRUE(call.Bind()->forward.has_drop_mask);
}

TEST(BindGrad, MissingTensors) {
  EXPECT_TRUE(Refused(With([](auto& args) { args.q = {}; }), "q: missing, want 4 dimensions (BNSD)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.k = {}; }), "k: missing, want 4 dimensions (BNSD)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.v = {}; }), "v: missing, want 4 dimensions (BNSD)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.out = {}; }), "out: missing, want 4 dimensions (BNSD)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.d_out = {}; }), "d_out: missing, want [2,6,7,8] (out.shape)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.softmax_max = {}; }),
                      "softmax_max: missing, want the forward's, f32 [B,N,Sq] or [B,N,Sq,8]"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.softmax_sum = {}; }),
                      "softmax_sum: missing, want the forward's, f32 [B,N,Sq] or [B,N,Sq,8]"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dq = {}; }), "dq: missing, want [2,6,7,16] (q.shape)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dk = {}; }), "dk: missing, want [2,3,9,16] (k.shape)"));
  EXPECT_TRUE(Refused(With([](auto& args) { args.dv = {}; }), "dv: missing, want [2,3,9,8] (v.shape)"));
}

TEST(BindGrad, TypesAreThoseOfTheTensors) {
  EXPECT_TRUE(Runs(GradCall({.dtype = DType::kBF16})));
  EXPECT_TRUE(Runs(GradCall({.dtype = DType::kF16})));
  const CallShape bf16 = {.dtype = DType::kBF16};
  EXPECT_TRUE(Refused(With([](auto& args) { args.d_out.dtype = DType::kF32; }, bf16),
                      "d_out.dtype=f32, want bf16 (out.dtype)"));
  EXPECT_TRUE(
      Refused(With([](auto& args) { args.dq.dtype = DType::kF32; }, bf16), "dq.dtype=f32, want bf16 (q.dtype)"));
  EXPECT_TRUE(
      Refused(With([](auto& args) { args.dk.dtype = DType::kF16; }, bf16), "dk.dtype=f16, want bf16 (k.dtype)"));
  EXPECT_TRUE(
      Refused(With([](auto& args) { args.dv.dtype = DType::kF32; }, bf16), "dv.dtype=f32, want bf16 (v.dtype)"));
}

TEST(BindGrad, InputsMayHaveStrideZero) {
  GradCall call = With([](auto& args) {
    args.d_out.stride = {0, 0, 0, 1};
    args.out.stride = {0, 0, 8, 1};
    args.softmax_max.stride = {0, 0, 0};
    args.softmax_sum.stride = {0, 7, 1};
  });
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->d_out.Offset(1, 2, 3), 0);
  EXPECT_EQ(bound->forward.out.Offset(1, 2, 3), 24);
  EXPECT_EQ(bound->forward.softmax_sum.Offset(1, 2, 3), 17);
  call.args.d_out.stride = {0, 0, 0, 0};
  EXPECT_TRUE(Refused(call, "d_out.stride[3]=0, want 1 (innermost)"));
}

TEST(BindGrad, GradientsMustNotOverlapThemselves) {
  const char* apart = ", want strides that keep its elements apart";
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.dq.stride = {0, 112, 16, 1};
                      }),
                      std::string("dq.stride=[0,112,16,1]") + apart));
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.dk.stride = {432, 0, 16, 1};
                      }),
                      std::string("dk.stride=[432,0,16,1]") + apart));
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.dv.stride = {216, 72, 7, 1};
                      }),
                      std::string("dv.stride=[216,72,7,1]") + apart));
  BindCall forward;
  forward.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9}, {0, 0, 9, 1});
  GradCall call(forward);
  call.args.dpse = BindCall::Output(DType::kF32, {2, 6, 7, 9}, {0, 63, 9, 1});
  EXPECT_TRUE(Refused(call, std::string("dpse.stride=[0,63,9,1]") + apart));
}

TEST(BindGrad, RefusesBadStrides) {
  EXPECT_TRUE(Refused(With([](auto& args) { args.dq.stride = {672, 112, -16, 1}; }), "dq.stride[2]=-16, want >= 0"));
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.dq.stride = {672, 112, 32, 2};
                      }),
                      "dq.stride[3]=2, want 1 (innermost)"));
  EXPECT_TRUE(Refused(With([](auto& args) {
                        args.d_out.stride = {8, 1};
                      }),
                      "d_out.stride has rank 2, want 4 (d_out.shape) or 0 (dense)"));
}

TEST(BindGrad, StatisticsMayBeTheDevicesEightCopies) {
  GradCall call = With([](auto& args) {
    args.softmax_max.shape.push_back(8);
    args.softmax_sum.shape.push_back(8);
  });
  EXPECT_TRUE(Runs(call));
  EXPECT_EQ(call.Bind()->forward.softmax_max.Offset(1, 2, 3), (1 * 42 + 2 * 7 + 3) * 8);
}

TEST(BindGrad, PackedRowsHaveATail) {
  const GradCall call(PackedShape());
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->forward.tail_row_begin, 18);
  EXPECT_EQ(bound->forward.tail_row_end, 20);
  EXPECT_EQ(bound->forward.problem.sequences.size(), 4u);
  EXPECT_EQ(bound->dk.batch, 0);
}

TEST(BindGrad, RopeGradientsComeWithTheirParts) {
  BindCall forward;
  forward.args.q_rope = BindCall::Tensor(DType::kF32, {2, 6, 7, 4});
  forward.args.k_rope = BindCall::Tensor(DType::kF32, {2, 3, 9, 4});
  const GradCall good(forward);
  GradCall call = good;
  call.args.dq_rope = {};
  EXPECT_TRUE(Refused(call, "dq_rope: missing, want the gradient of q_rope"));
  call = good;
  call.args.dk_rope = {};
  EXPECT_TRUE(Refused(call, "dk_rope: missing, want the gradient of k_rope"));
  call = good;
  call.args.dk_rope.shape[3] = 16;
  EXPECT_TRUE(Refused(call, "dk_rope.shape[3]=16, want 4 (k_rope.shape[3])"));
  call = good;
  call.args.dq_rope.dtype = DType::kF16;
  EXPECT_TRUE(Refused(call, "dq_rope.dtype=f16, want f32 (q_rope.dtype)"));
  call = GradCall();
  call.args.dq_rope = good.args.dq_rope;
  EXPECT_TRUE(Refused(call, "dq_rope: given without q_rope"));
  call = GradCall();
  call.args.dk_rope = good.args.dk_rope;
  EXPECT_TRUE(Refused(call, "dk_rope: given without k_rope"));
}

TEST(BindGrad, DPseSumsWhatPseShares) {
  const struct {
    Dims shape;
    bool batch, rows;
    int64_t batch_stride, head, row;
  } forms[] = {{{2, 6, 7, 9}, false, false, 378, 63, 9},
               {{1, 6, 7, 9}, true, false, 0, 63, 9},
               {{2, 6, 1, 9}, false, true, 54, 9, 0},
               {{1, 6, 1, 9}, true, true, 0, 9, 0}};
  for (const auto& form : forms) {
    const GradCall call = GradCall::WithDPse({}, form.shape);
    EXPECT_TRUE(Runs(call));
    const auto bound = call.Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    EXPECT_TRUE(bound->has_dpse);
    EXPECT_EQ(bound->dpse.shared_batch, form.batch);
    EXPECT_EQ(bound->dpse.shared_rows, form.rows);
    ASSERT_EQ(bound->dpse.sequences.size(), 2u);
    EXPECT_EQ(bound->dpse.sequences[0].offset, 0);
    EXPECT_EQ(bound->dpse.sequences[1].offset, form.batch_stride);
    EXPECT_EQ(bound->dpse.sequences[1].head, form.head);
    EXPECT_EQ(bound->dpse.sequences[1].row, form.row);
  }
}

TEST(BindGrad, DPseOfOneElementSharesNothing) {
  EXPECT_FALSE(GradCall::WithDPse({.batch = 1}, {1, 6, 7, 9}).Bind()->dpse.shared_batch);
  EXPECT_FALSE(GradCall::WithDPse({.sq = 1}, {2, 6, 1, 9}).Bind()->dpse.shared_rows);
  // A gradient is written even if it is a sum of no terms.
  EXPECT_TRUE(GradCall::WithDPse({.batch = 0}, {1, 6, 7, 9}).Bind()->dpse.shared_batch);
  EXPECT_TRUE(GradCall::WithDPse({.sq = 0}, {2, 6, 1, 9}).Bind()->dpse.shared_rows);
}

TEST(BindGrad, DPseHasItsOwnStridesWherePseIsBroadcastByStride) {
  BindCall forward;
  forward.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9}, {0, 0, 0, 1});
  GradCall call(forward);
  call.args.dpse = BindCall::Output(DType::kF32, {2, 6, 7, 9}, {1000, 100, 10, 1});
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_FALSE(bound->dpse.shared_batch || bound->dpse.shared_rows);
  EXPECT_EQ(bound->forward.pse.sequences[1].row, 0);
  EXPECT_EQ(bound->dpse.sequences[1].offset, 1000);
  EXPECT_EQ(bound->dpse.sequences[1].head, 100);
  EXPECT_EQ(bound->dpse.sequences[1].row, 10);
}

TEST(BindGrad, DPseHasOneHeadOnlyWhereHeadsSharePseByStride) {
  BindCall forward;
  forward.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9}, {63, 0, 9, 1});
  GradCall call(forward);
  call.args.dpse = BindCall::Output(DType::kF32, {2, 1, 7, 9});
  EXPECT_TRUE(Runs(call));
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->dpse.sequences[1].offset, 63);
  EXPECT_TRUE(bound->dpse.shared_heads);
  EXPECT_TRUE(bound->forward.problem.one_pair_at_a_time);  // tiles of all heads add to the same sums
  call.args.pse.stride = {378, 63, 9, 1};
  EXPECT_TRUE(Refused(call, "dpse.shape[1]=1, want 6 (pse.shape[1])"));
  call.args.pse.stride = {};
  EXPECT_TRUE(Refused(call, "dpse.shape[1]=1, want 6 (pse.shape[1])"));
}

TEST(BindGrad, DPseOfPackedSequences) {
  const int64_t pairs = 6 * (3 * 5 + 0 * 4 + 9 * 0 + 6 * 21);
  const auto full = GradCall::WithDPse(PackedShape(), {pairs}).Bind();
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_FALSE(full->dpse.shared_rows);
  EXPECT_EQ(full->dpse.sequences[3].offset, 6 * 15);
  EXPECT_EQ(full->dpse.sequences[3].row, 21);
  const auto shared = GradCall::WithDPse(PackedShape(), {6 * 30}).Bind();
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_TRUE(shared->dpse.shared_rows);
  EXPECT_FALSE(shared->dpse.shared_batch);
  EXPECT_EQ(shared->dpse.sequences[3].offset, 6 * 9);
  EXPECT_EQ(shared->dpse.sequences[3].head, 21);
  EXPECT_EQ(shared->dpse.sequences[3].row, 0);
}

TEST(BindGrad, DPseIsRefusedWhereItHasNoMeaning) {
  GradCall call;
  call.args.dpse = BindCall::Output(DType::kF32, {2, 6, 7, 9});
  EXPECT_TRUE(Refused(call, "dpse: given without pse"));
  call = GradCall::WithDPse({}, {6});
  call.options.pse_type = PseType::kSlopes;
  EXPECT_TRUE(Refused(call, "dpse: given, want dslopes (pse_type 2)"));
  call = GradCall::WithDPse({}, {2, 6, 7, 9});
  call.args.dpse.shape[0] = 1;
  EXPECT_TRUE(Refused(call, "dpse.shape[0]=1, want 2 (pse.shape[0])"));
  call = GradCall::WithDPse({.dtype = DType::kBF16}, {2, 6, 7, 9}, DType::kBF16);
  EXPECT_TRUE(Runs(call));
  EXPECT_EQ(call.Bind()->dpse.dtype, DType::kBF16);
  call.args.dpse.dtype = DType::kF32;
  EXPECT_TRUE(Refused(call, "dpse.dtype=f32, want bf16 (pse.dtype)"));
}

TEST(BindGrad, DPseIsNotAvailableForTheCompressedForm) {
  GradCall call = GradCall::WithDPse({.heads = 2, .heads_kv = 2, .sq = 1500, .sk = 1500}, {1, 2, 1024, 1500});
  call.options.mask = Mask::Causal();
  EXPECT_TRUE(Refused(call, "dpse: not available for the compressed 1024-row form"));
  call.args.dpse = {};
  EXPECT_TRUE(Runs(call));
  EXPECT_TRUE(call.Bind()->forward.pse.compressed);
}

TEST(BindGrad, DSlopesHaveTheShapeOfTheSlopes) {
  EXPECT_TRUE(Runs(GradCall::WithDSlopes({6})));
  const auto shared = GradCall::WithDSlopes({6}).Bind();
  EXPECT_TRUE(shared->has_dslopes && shared->dslopes_shared);
  EXPECT_EQ(shared->dslopes_batch_stride, 0);
  GradCall own = GradCall::WithDSlopes({2, 6});
  own.args.dslopes.stride = {10, 1};
  EXPECT_TRUE(Runs(own));
  EXPECT_TRUE(own.Bind()->has_dslopes && !own.Bind()->dslopes_shared);
  EXPECT_EQ(own.Bind()->dslopes_batch_stride, 10);
  own.args.dslopes = BindCall::Output(DType::kF32, {6});
  EXPECT_TRUE(Refused(own, "dslopes.shape=[6], want [2,6] (pse.shape)"));
  own.args.dslopes = BindCall::Output(DType::kF32, {2, 5});
  EXPECT_TRUE(Refused(own, "dslopes.shape[1]=5, want 6 (pse.shape[1])"));
  own.args.dslopes = BindCall::Output(DType::kBF16, {2, 6});
  EXPECT_TRUE(Refused(own, "dslopes.dtype=bf16, want f32 (pse.dtype)"));
  own.args.dslopes = BindCall::Output(DType::kF32, {2, 6}, {0, 1});
  EXPECT_TRUE(Refused(own, "dslopes.stride=[0,1], want strides that keep its elements apart"));
}

TEST(BindGrad, DSlopesAreRefusedWithoutSlopes) {
  GradCall call = GradCall::WithDPse({}, {2, 6, 7, 9});
  call.args.dslopes = BindCall::Output(DType::kF32, {6});
  EXPECT_TRUE(Refused(call, "dslopes: given, want none (pse_type 1)"));
  call = GradCall();
  call.options.pse_type = PseType::kScaleThenAdd;
  call.args.dslopes = BindCall::Output(DType::kF32, {6});
  EXPECT_TRUE(Refused(call, "dslopes: given, want none (pse_type 0)"));
}

TEST(BindGrad, DSinkComesWithASink) {
  GradCall call;
  call.args.dsink = BindCall::Output(DType::kF32, {6});
  EXPECT_TRUE(Refused(call, "dsink: given without sink"));
  call.args.sink = BindCall::Tensor(DType::kF32, {6});
  EXPECT_TRUE(Runs(call));
  EXPECT_TRUE(call.Bind()->has_dsink);
  call.args.dsink.shape[0] = 5;
  EXPECT_TRUE(Refused(call, "dsink.shape[0]=5, want 6 (sink.shape[0])"));
  call.args.dsink = BindCall::Output(DType::kF16, {6});
  EXPECT_TRUE(Refused(call, "dsink.dtype=f16, want f32 (sink.dtype)"));
  call.args.dsink = {};
  EXPECT_TRUE(Runs(call));
  EXPECT_TRUE(call.Bind()->forward.has_sink && !call.Bind()->has_dsink);
}

TEST(BindGrad, RowsAreThoseOfTheArguments) {
  const GradCall call = GradCall::WithDPse({}, {2, 6, 7, 9});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  const ops::GradRows rows = ops::RowsOf(*bound, call.args);
  EXPECT_EQ(rows.q.data, call.args.q.data);
  EXPECT_EQ(rows.scores.pse.data, call.args.pse.data);
  EXPECT_EQ(rows.out.data, call.args.out.data);
  EXPECT_EQ(static_cast<const void*>(rows.softmax_max.data), call.args.softmax_max.data);
  EXPECT_EQ(rows.dpse.data, call.args.dpse.data);
  EXPECT_EQ(rows.dk.At(1, 2, 3), static_cast<std::byte*>(call.args.dk.data) + 4 * bound->dk.Offset(1, 2, 3));
  EXPECT_EQ(rows.q_rope.data, nullptr);
  EXPECT_EQ(rows.dsink.data, nullptr);
}

}  // namespace
}  // namespace fa::test
