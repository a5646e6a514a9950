#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fa/decode_attention.h"
#include "fa/prompt_flash_attention.h"
#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

class EveryLayout : public ::testing::TestWithParam<Layout> {
 protected:
  static CallShape Shape() {
    CallShape shape{.layout = GetParam()};
    if (GetParam() == Layout::kTND) {
      shape.cu_q = {3, 7};
      shape.cu_kv = {4, 9};
    }
    return shape;
  }
};

TEST_P(EveryLayout, FillsTheProblem) {
  const auto bound = BindCall(Shape()).Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const tiling::AttentionProblem& problem = bound->problem;
  EXPECT_EQ(problem.heads, 6);
  EXPECT_EQ(problem.heads_kv, 3);
  EXPECT_EQ(problem.d, 16);
  EXPECT_EQ(problem.d_rope, 0);
  EXPECT_EQ(problem.dv, 8);
  EXPECT_EQ(problem.sequences.size(), 2u);
  EXPECT_FALSE(problem.score_passes);
  EXPECT_FALSE(problem.dense_mask);
  EXPECT_FLOAT_EQ(bound->scale, 0.25f);
  EXPECT_TRUE(bound->has_max);
  EXPECT_TRUE(bound->has_sum);
  EXPECT_FALSE(bound->has_lse);
  EXPECT_TRUE(bound->q_start.empty());
}

TEST_P(EveryLayout, RefusesEveryWrongSizeOfEveryRequiredTensor) {
  const BindCall good(Shape());
  ASSERT_TRUE(Binds(good));
  const auto refuses_changed_sizes = [&](const char* name, auto member) {
    for (int i = 0; i < (good.args.*member).shape.rank(); ++i) {
      BindCall call(Shape());
      (call.args.*member).shape[i] += 1;
      EXPECT_TRUE(Refused(call, "want ")) << name << ".shape[" << i << "] + 1";
    }
  };
  refuses_changed_sizes("q", &AttentionArgs::q);
  refuses_changed_sizes("k", &AttentionArgs::k);
  refuses_changed_sizes("v", &AttentionArgs::v);
  refuses_changed_sizes("out", &AttentionArgs::out);
  refuses_changed_sizes("softmax_max", &AttentionArgs::softmax_max);
}

TEST_P(EveryLayout, RefusesAWrongRank) {
  BindCall call(Shape());
  call.args.k.shape.push_back(1);
  EXPECT_TRUE(Refused(call, "k.shape=["));
  EXPECT_TRUE(Refused(call, std::string("dimensions (") + Name(GetParam()) + ")"));
}

TEST_P(EveryLayout, AcceptsCopiesOfStatistics) {
  BindCall call(Shape());
  call.args.softmax_max.shape.push_back(8);
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->softmax_max.copies, 8);
  EXPECT_EQ(bound->softmax_sum.copies, 1);
  call.args.softmax_max.shape[call.args.softmax_max.shape.rank() - 1] = 7;
  EXPECT_TRUE(Refused(call, "=7, want 8 (equal copies of a statistic)"));
}

INSTANTIATE_TEST_SUITE_P(BindShapes, EveryLayout,
                         ::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND,
                                           Layout::kBNSD_BSND),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(BindShapes, NamesTensorIndexGotWantAndSource) {
  BindCall call;
  call.args.k.shape[3] = 5;
  EXPECT_TRUE(Refused(call, "invalid argument: k.shape[3]=5, want 16 (q.shape[3])"));
  call = BindCall();
  call.args.k.shape[0] = 5;
  EXPECT_TRUE(Refused(call, "k.shape[0]=5, want 2 (q.shape[0])"));
  call = BindCall();
  call.args.v.shape[2] = 5;
  EXPECT_TRUE(Refused(call, "v.shape[2]=5, want 9 (k.shape[2])"));
  call = BindCall();
  call.args.v.shape[1] = 2;
  EXPECT_TRUE(Refused(call, "v.shape[1]=2, want 3 (k.shape[1])"));
  call = BindCall();
  call.args.out.shape[3] = 16;
  EXPECT_TRUE(Refused(call, "out.shape[3]=16, want 8 (v.shape[3])"));
  call = BindCall();
  call.args.softmax_sum.shape[2] = 9;
  EXPECT_TRUE(Refused(call, "softmax_sum.shape[2]=9, want 7 (q.shape[2])"));
}

TEST(BindShapes, OutOfBnsdBsndIsComparedAcrossLayouts) {
  BindCall call({.layout = Layout::kBNSD_BSND});
  EXPECT_EQ(call.args.out.shape, (Dims{2, 7, 6, 8}));
  EXPECT_TRUE(Binds(call));
  call.args.out.shape = {2, 6, 7, 8};
  EXPECT_TRUE(Refused(call, "out.shape[1]=6, want 7 (q.shape[2])"));
}

TEST(BindShapes, KeyHeadsDivideQueryHeads) {
  BindCall call({.heads = 6, .heads_kv = 4});
  EXPECT_TRUE(Refused(call, "k.shape[1]=4, want a divisor of 6 query heads"));
  call = BindCall({.heads = 6, .heads_kv = 0});
  EXPECT_TRUE(Refused(call, "k.shape[1]=0, want a divisor of 6 query heads"));
  call = BindCall({.layout = Layout::kBSH, .heads = 6, .heads_kv = 4});
  EXPECT_TRUE(Refused(call, "k.shape[2]=64, want a divisor of 6 query heads times the head size"));
}

TEST(BindShapes, FusedLayoutsSplitTheLastDimensionByHeads) {
  BindCall call({.layout = Layout::kBSH});
  call.options.heads = 0;
  EXPECT_TRUE(Refused(call, "heads=0, want >= 1 (layout BSH)"));
  call.options.heads = 5;
  EXPECT_TRUE(Refused(call, "q.shape[2]=96, want a multiple of 5 (heads)"));
  call.options.heads = -3;
  EXPECT_TRUE(Refused(call, "heads=-3, want >= 1"));
  call = BindCall({.layout = Layout::kSBH});
  call.args.k.shape[2] = 40;
  EXPECT_TRUE(Refused(call, "k.shape[2]=40, want a multiple of 16 (head size of q)"));
  call = BindCall({.layout = Layout::kSBH});
  call.args.v.shape[2] = 25;
  EXPECT_TRUE(Refused(call, "v.shape[2]=25, want a multiple of 3 (heads of k)"));
  call = BindCall({.layout = Layout::kSBH});
  call.args.out.shape[2] = 96;
  EXPECT_TRUE(Refused(call, "out.shape[2]=96, want 48 (6 heads of 8, v)"));
}

TEST(BindShapes, HeadsAreComparedWhereTheTensorHasThem) {
  BindCall call;
  call.options.heads = 6;
  EXPECT_TRUE(Binds(call));
  call.options.heads = 5;
  EXPECT_TRUE(Refused(call, "heads=5, want 6 (q.shape[1], layout BNSD)"));
}

TEST(BindShapes, HeadSizesAreOneTo1024AndIndependent) {
  EXPECT_TRUE(Binds(BindCall({.d = 1, .dv = 1024})));
  EXPECT_TRUE(Binds(BindCall({.d = 1024, .dv = 1})));
  EXPECT_TRUE(Refused(BindCall({.d = 0}), "q.shape[3]=0, want a head size of 1..1024"));
  EXPECT_TRUE(Refused(BindCall({.d = 1025}), "q.shape[3]=1025, want a head size of 1..1024"));
  EXPECT_TRUE(Refused(BindCall({.dv = 0}), "v.shape[3]=0, want a head size of 1..1024"));
  EXPECT_TRUE(Refused(BindCall({.dv = 1025}), "v.shape[3]=1025, want a head size of 1..1024"));
  EXPECT_TRUE(Refused(BindCall({.layout = Layout::kBSH, .d = 1025}),
                      "q.shape[2]=6150, want a head size of 1..1024 times 6 heads"));
}

TEST(BindShapes, NoHeadsIsRefusedOtherEmptySizesAreNot) {
  EXPECT_TRUE(Refused(BindCall({.heads = 0}), "q.shape[1]=0, want >= 1"));
  EXPECT_TRUE(Binds(BindCall({.batch = 0})));
  EXPECT_TRUE(Binds(BindCall({.sq = 0})));
  EXPECT_TRUE(Binds(BindCall({.sk = 0})));
}

TEST(BindShapes, RefusesMixedAndForeignTypes) {
  BindCall call;
  call.args.k.dtype = DType::kF16;
  EXPECT_TRUE(Refused(call, "k.dtype=f16, want f32 (q.dtype)"));
  call = BindCall();
  call.args.v.dtype = DType::kBF16;
  EXPECT_TRUE(Refused(call, "v.dtype=bf16, want f32 (q.dtype)"));
  call = BindCall();
  call.args.out.dtype = DType::kF16;
  EXPECT_TRUE(Refused(call, "out.dtype=f16, want f32 (q.dtype)"));
  EXPECT_TRUE(Refused(BindCall({.dtype = DType::kI8}), "q.dtype=i8, want f32, f16 or bf16"));
  call = BindCall();
  call.args.softmax_max.dtype = DType::kF16;
  EXPECT_TRUE(Refused(call, "softmax_max.dtype=f16, want f32"));
  call = BindCall();
  call.args.q.dtype = static_cast<DType>(77);
  EXPECT_TRUE(Refused(call, "q.dtype=77, want a DType"));
  EXPECT_TRUE(Binds(BindCall({.dtype = DType::kF16})));
  EXPECT_TRUE(Binds(BindCall({.dtype = DType::kBF16})));
}

TEST(BindShapes, MissingRequiredTensors) {
  BindCall call;
  call.args.q = {};
  EXPECT_TRUE(Refused(call, "q: missing, want 4 dimensions (BNSD)"));
  call = BindCall();
  call.args.k = {};
  EXPECT_TRUE(Refused(call, "k: missing, want 4 dimensions (BNSD)"));
  call = BindCall();
  call.args.v = {};
  EXPECT_TRUE(Refused(call, "v: missing, want 4 dimensions (BNSD)"));
  call = BindCall();
  call.args.out = {};
  EXPECT_TRUE(Refused(call, "out: missing, want 4 dimensions (BNSD)"));
}

TEST(BindShapes, PlanningNeedsNoAddressOfARequiredTensor) {
  BindCall call;
  call.args.q.data = nullptr;
  call.args.out.data = nullptr;
  EXPECT_TRUE(Binds(call));
}

TEST(BindShapes, StridesOfAnyKindButNegativeOrSpreadInnermost) {
  BindCall call;
  call.args.k.stride = {0, 0, 16, 1};
  EXPECT_TRUE(Binds(call));
  call.args.k.stride = {0, 0, -16, 1};
  EXPECT_TRUE(Refused(call, "k.stride[2]=-16, want >= 0"));
  call.args.k.stride = {0, 0, 32, 2};
  EXPECT_TRUE(Refused(call, "k.stride[3]=2, want 1 (innermost)"));
  call.args.k.stride = {0, 16, 1};
  EXPECT_TRUE(Refused(call, "k.stride has rank 3, want 4 (k.shape) or 0 (dense)"));
  BindCall narrow({.d = 1});
  narrow.args.k.stride = {27, 9, 3, 5};  // the innermost dimension has one element, so its stride is never used
  EXPECT_TRUE(Binds(narrow));
}

TEST(BindShapes, StatisticsMayHaveAnyInnermostStride) {
  BindCall call;
  call.args.softmax_max.stride = {1, 2, 12};
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->softmax_max.Offset(1, 2, 3), 1 + 4 + 36);
}

TEST(BindShapes, OutputsMustNotOverlapThemselves) {
  BindCall call;
  call.args.out.stride = {0, 56, 8, 1};
  EXPECT_TRUE(Refused(call, "out.stride=[0,56,8,1], want strides that keep its elements apart"));
  call.args.out.stride = {336, 56, 7, 1};
  EXPECT_TRUE(Refused(call, "out.stride=[336,56,7,1], want"));
  call = BindCall();
  call.args.softmax_sum.stride = {0, 7, 1};
  EXPECT_TRUE(Refused(call, "softmax_sum.stride=[0,7,1], want strides that keep its elements apart"));
}

TEST(BindShapes, SizesBeyond64BitsAreRefused) {
  BindCall call;
  call.args.q.shape = {kHuge, 6, 7, 16};
  EXPECT_TRUE(Refused(call, "q.shape=[4611686018427387904,6,7,16], want at most 2^60 elements"));
  call = BindCall();
  call.args.q.shape[2] = -1;
  EXPECT_TRUE(Refused(call, "q.shape[2]=-1, want >= 0"));
  call = BindCall();
  call.args.k.stride = {std::numeric_limits<int64_t>::max(), 144, 16, 1};
  EXPECT_TRUE(Refused(call, "k.stride=[9223372036854775807,144,16,1], want a span of less than 2^63 bytes"));
  call.args.k.stride = {kHuge, 144, 16, 1};  // the tensor spans less than 2^63 elements, but at least 2^63 bytes
  EXPECT_TRUE(Refused(call, "want a span of less than 2^63 bytes"));
  call = BindCall({.layout = Layout::kBSH, .dv = 1000});
  call.options.heads = int64_t{1} << 59;
  call.args.q.shape = {1, 1, int64_t{1} << 59};
  call.args.k.shape = {1, 1, 1};
  call.args.v.shape = {1, 1, 1000};
  call.args.out.shape = {1, 1, int64_t{1} << 59};
  EXPECT_TRUE(Refused(call, "out.shape[2]=576460752303423488, want"));
}

TEST(BindShapes, MoreSequencesThanMemoryIsAStatus) {
  BindCall call({.heads = 1, .heads_kv = 1, .sq = 1, .sk = 1, .d = 1, .dv = 1});
  const int64_t batch = int64_t{1} << 59;
  for (TensorView* tensor : {&call.args.q, &call.args.k, &call.args.v}) tensor->shape[0] = batch;
  call.args.out.shape[0] = batch;
  call.args.softmax_max = {};
  call.args.softmax_sum = {};
  EXPECT_EQ(call.Bind().status().code(), StatusCode::kOutOfMemory);
}

TEST(BindShapes, RopeComesInPairsAndDefinesItsOwnSize) {
  BindCall call;
  call.args.q_rope = BindCall::Tensor(DType::kF32, {2, 6, 7, 20});
  EXPECT_TRUE(Refused(call, "k_rope: missing (q_rope is given)"));
  call.args.k_rope = BindCall::Tensor(DType::kF32, {2, 3, 9, 20});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_TRUE(bound->has_rope);
  EXPECT_EQ(bound->problem.d_rope, 20);
  EXPECT_FLOAT_EQ(bound->scale, 1 / 6.0f);
  EXPECT_EQ(bound->k_rope.Offset(1, 2, 3), (1 * 3 + 2) * 180 + 60);
  call.args.k_rope.shape[3] = 21;
  EXPECT_TRUE(Refused(call, "k_rope.shape[3]=21, want 20 (q_rope.shape[3])"));
  call.args.k_rope.shape = {2, 6, 9, 20};
  EXPECT_TRUE(Refused(call, "k_rope.shape[1]=6, want 3 (k.shape[1])"));
  call.args.k_rope = BindCall::Tensor(DType::kF16, {2, 3, 9, 20});
  EXPECT_TRUE(Refused(call, "k_rope.dtype=f16, want f32 (q.dtype)"));
  call.args.q_rope = {};
  call.args.k_rope.dtype = DType::kF32;
  EXPECT_TRUE(Refused(call, "q_rope: missing (k_rope is given)"));
}

TEST(BindShapes, FusedRopeUsesTheHeadsOfQueryAndKey) {
  BindCall call({.layout = Layout::kSBH});
  call.args.q_rope = BindCall::Tensor(DType::kF32, {7, 2, 60});
  call.args.k_rope = BindCall::Tensor(DType::kF32, {9, 2, 30});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  EXPECT_EQ(bound->problem.d_rope, 10);
  call.args.k_rope.shape[2] = 60;
  EXPECT_TRUE(Refused(call, "k_rope.shape[2]=60, want 30 (3 heads of 10, q_rope)"));
}

TEST(BindShapes, SinkIsF32ForEveryHead) {
  BindCall call;
  call.args.sink = BindCall::Tensor(DType::kF32, {6});
  EXPECT_TRUE(call.Bind()->has_sink);
  call.args.sink.shape = {5};
  EXPECT_TRUE(Refused(call, "sink.shape[0]=5, want 6 (q.shape[1])"));
  call.args.sink.shape = {1, 6};
  EXPECT_TRUE(Refused(call, "sink.shape=[1,6], want [N]"));
  call.args.sink = BindCall::Tensor(DType::kBF16, {6});
  EXPECT_TRUE(Refused(call, "sink.dtype=bf16, want f32"));
}

TEST(BindShapes, ScalarsOutOfTheirRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  BindCall call;
  call.options.scale = nan;
  EXPECT_TRUE(Refused(call, "scale=nan, want a finite number"));
  call.options.scale = -inf;
  EXPECT_TRUE(Refused(call, "scale=-inf, want a finite number"));
  call.options.scale = -2.0f;
  EXPECT_EQ(call.Bind()->scale, -2.0f);
  call.options.scale = 0.0f;
  EXPECT_EQ(call.Bind()->scale, 0.0f);
  call.options.softcap = -1;
  EXPECT_TRUE(Refused(call, "softcap=-1"));
  call.options.softcap = nan;
  EXPECT_TRUE(Refused(call, "softcap=nan"));
  call.options.softcap = inf;
  EXPECT_TRUE(Refused(call, "softcap=inf"));
  call = BindCall();
  call.options.layout = static_cast<Layout>(9);
  EXPECT_TRUE(Refused(call, "layout=9, want BNSD"));
  call = BindCall();
  call.options.pse_type = static_cast<PseType>(4);
  EXPECT_TRUE(Refused(call, "pse_type=4, want 0..3"));
  call = BindCall();
  call.options.q_start = std::numeric_limits<int64_t>::min();
  EXPECT_TRUE(Refused(call, "q_start=-9223372036854775808, want -2^60..2^60"));
  call = BindCall();
  call.options.kv_start = kHuge;
  EXPECT_TRUE(Refused(call, "kv_start=4611686018427387904, want -2^60..2^60"));
}

// Other interfaces, such as the Python binding, take the numeric options from the lists FA_..._NUMBERS, so each list
// must be complete. Each structured binding compiles only if the struct has exactly the members named here, in this
// order.
TEST(OptionNumbers, AreAllInTheirLists) {
#define FA_NAME(type, name, text) , name
  const AttentionOptions dense;
  const auto& [layout, heads, scale, mask, pse_type FA_DENSE_NUMBERS(FA_NAME), dropout] = dense;
  EXPECT_EQ(&keep_prob, &dense.keep_prob);
  {
    const DecodeAttentionOptions decode;
    const auto& [layout, heads, scale, mask FA_DECODE_NUMBERS(FA_NAME), antiquant] = decode;
    EXPECT_EQ(&softcap, &decode.softcap);
  }
  {
    PromptAttentionOptions prompt;
    const auto& [layout, heads, heads_kv, scale, mask, pse_type FA_PROMPT_NUMBERS(FA_NAME)] = prompt;
    EXPECT_EQ(&kv_start, &prompt.kv_start);
  }
#undef FA_NAME
}

TEST(BindShapes, SoftcapTouchesEveryScore) {
  BindCall call;
  call.options.softcap = 30;
  EXPECT_TRUE(call.Bind()->problem.score_passes);
  call.args.pse = BindCall::Tensor(DType::kF32, {2, 6, 7, 9});
  EXPECT_TRUE(Refused(call, "softcap=30"));
  EXPECT_TRUE(Refused(call, "want 0 (pse_type 1"));
  call.options.pse_type = PseType::kScaleThenAdd;
  EXPECT_TRUE(Binds(call));
}

TEST(BindShapes, RowsAreDenseWhereF32AndHeadSizeApart) {
  EXPECT_TRUE(BindCall().Bind()->problem.k_in_place);
  EXPECT_TRUE(BindCall().Bind()->problem.v_in_place);
  EXPECT_FALSE(BindCall({.dtype = DType::kBF16}).Bind()->problem.k_in_place);
  EXPECT_FALSE(BindCall({.layout = Layout::kBSND}).Bind()->problem.k_in_place);
  EXPECT_TRUE(BindCall({.layout = Layout::kBSND, .heads_kv = 1}).Bind()->problem.k_in_place);
  BindCall call;
  call.args.v.stride = {300, 100, 10, 1};
  EXPECT_TRUE(call.Bind()->problem.k_in_place);
  EXPECT_FALSE(call.Bind()->problem.v_in_place);
}

}  // namespace
}  // namespace fa::test
