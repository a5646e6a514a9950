// A refused prompt call names the wrong argument and writes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "prompt_case.h"

namespace fa::test {
namespace {

struct Mistake {
  const char* name;
  DType dtype, out;
  const char* message;  ///< a part of the expected message
  std::function<void(PromptCase*)> prepare;
  std::function<void(PromptAttentionArgs*, PromptAttentionOptions*)> make;
};

using Args = PromptAttentionArgs;
using Options = PromptAttentionOptions;
constexpr DType kF16 = DType::kF16, kI8 = DType::kI8, kBF16 = DType::kBF16;
const int64_t kThree[] = {1, 2, 3}, kTooLong[] = {16, 17}, kNegative[] = {-1, 2}, kSums[] = {4, 16};
const float kOne = 1, kNaN = std::numeric_limits<float>::quiet_NaN();
const TensorView kScale = {&kOne, DType::kF32, {1}, {}};

void Usual(PromptCase* /*c*/) {}

template <int64_t Mode, int64_t Pre, int64_t Next>
void SparseMode(Args* /*a*/, Options* o) {
  o->mask = *Mask::FromSparseMode(Mode, Pre, Next, {}, false);
}

const Mistake kMistakes[] = {
    {"QueryType", kF16, kF16, "q.dtype=u8", Usual, [](Args* a, Options*) { a->q.dtype = DType::kU8; }},
    {"KeyType", kI8, kI8, "k.dtype=f16, want i8 (q.dtype)", Usual, [](Args* a, Options*) { a->k.dtype = kF16; }},
    {"ValueType", kF16, kF16, "v.dtype=bf16", Usual, [](Args* a, Options*) { a->v.dtype = kBF16; }},
    {"QueryRopeType", kF16, kF16, "q_rope.dtype=f32, want f16 (q.dtype)", [](PromptCase* c) { c->d_rope = 8; },
     [](Args* a, Options*) { a->q_rope.dtype = DType::kF32; }},
    {"KeyRopeType", kBF16, kI8, "k_rope.dtype=f16, want bf16 (q.dtype)", [](PromptCase* c) { c->d_rope = 8; },
     [](Args* a, Options*) { a->k_rope.dtype = kF16; }},
    {"OutTypeOfFloats", kF16, kF16, "out.dtype=bf16", Usual, [](Args* a, Options*) { a->out.dtype = kBF16; }},
    {"OutTypeOfInt8", kI8, kF16, "out.dtype=bf16, want f16 or i8", Usual,
     [](Args* a, Options*) { a->out.dtype = kBF16; }},
    {"NoDeqScale1", kI8, kF16, "deq_scale1: missing", Usual, [](Args* a, Options*) { a->deq_scale1 = {}; }},
    {"NoQuantScale1", kI8, kI8, "quant_scale1: missing", Usual, [](Args* a, Options*) { a->quant_scale1 = {}; }},
    {"NoDeqScale2", kI8, kI8, "deq_scale2: missing", Usual, [](Args* a, Options*) { a->deq_scale2 = {}; }},
    {"NoQuantScale2", kI8, kI8, "quant_scale2: missing", Usual, [](Args* a, Options*) { a->quant_scale2 = {}; }},
    {"NoQuantScale2OfFloats", kF16, kI8, "quant_scale2: missing, want it (out.dtype=i8)", Usual,
     [](Args* a, Options*) { a->quant_scale2 = {}; }},
    {"QuantScale2OfF16Output", kI8, kF16, "quant_scale2: given, want none (out.dtype=f16)", Usual,
     [](Args* a, Options*) { a->quant_scale2 = kScale; }},
    {"QuantOffset2OfF16Output", kI8, kF16, "quant_offset2: given", Usual,
     [](Args* a, Options*) { a->quant_offset2 = kScale; }},
    {"DeqScale1OfFloats", kF16, kI8, "deq_scale1: given, want none (q.dtype=f16)", Usual,
     [](Args* a, Options*) { a->deq_scale1 = kScale; }},
    {"QuantScale1OfFloats", kF16, kF16, "quant_scale1: given", Usual,
     [](Args* a, Options*) { a->quant_scale1 = kScale; }},
    {"DeqScale2OfFloats", kF16, kF16, "deq_scale2: given", Usual, [](Args* a, Options*) { a->deq_scale2 = kScale; }},
    {"QuantScale2OfSameType", kF16, kF16, "quant_scale2: given", Usual,
     [](Args* a, Options*) { a->quant_scale2 = kScale; }},
    {"QuantOffset2OfSameType", kF16, kF16, "quant_offset2: given", Usual,
     [](Args* a, Options*) { a->quant_offset2 = kScale; }},
    {"DeqScale1Type", kI8, kF16, "deq_scale1.dtype=i64, want f32 or u64", Usual,
     [](Args* a, Options*) { a->deq_scale1.dtype = DType::kI64; }},
    {"QuantScale1Type", kI8, kF16, "quant_scale1.dtype=u64, want f32", Usual,
     [](Args* a, Options*) { a->quant_scale1.dtype = DType::kU64; }},
    {"DeqScale2Shape", kI8, kF16, "deq_scale2.shape=[2], want one element", Usual,
     [](Args* a, Options*) { a->deq_scale2.shape = {2}; }},
    {"DeqScale1NotFinite", kI8, kF16, "deq_scale1=", Usual, [](Args* a, Options*) { a->deq_scale1.data = &kNaN; }},
    {"QuantScale1NotFinite", kI8, kF16, "quant_scale1=", Usual,
     [](Args* a, Options*) { a->quant_scale1.data = &kNaN; }},
    {"QuantScale2Type", kF16, kI8, "quant_scale2.dtype=bf16, want f32", Usual,
     [](Args* a, Options*) { a->quant_scale2.dtype = kBF16; }},
    {"QuantScale2Shape", kF16, kI8, "quant_scale2.shape=[5], want 1 element or 32", Usual,
     [](Args* a, Options*) {
       a->quant_scale2.shape = {5};
       a->quant_scale2.stride = {};
     }},
    {"QuantOffset2Type", kBF16, kI8, "quant_offset2.dtype=bf16, want f32 (quant_scale2.dtype)",
     [](PromptCase* c) { c->with_offset = true; }, [](Args* a, Options*) { a->quant_offset2.dtype = kBF16; }},
    {"QuantOffset2Shape", kI8, kI8, "quant_offset2.shape=[1], want 32 elements (quant_scale2)",
     [](PromptCase* c) { c->with_offset = c->per_column = true; },
     [](Args* a, Options*) { a->quant_offset2.shape = a->quant_offset2.stride = {1}; }},
    {"TooFewLengths", kF16, kF16, "lengths_q has 3 entries, want 1 or 4", [](PromptCase* c) { c->batch = 4; },
     [](Args* a, Options*) { a->lengths_q = kThree; }},
    {"LengthTooLarge", kF16, kF16, "lengths_kv[1]=17, want 0..16 (k.shape[2])", Usual,
     [](Args* a, Options*) { a->lengths_kv = kTooLong; }},
    {"LengthNegative", kF16, kF16, "lengths_q[0]=-1, want 0..16 (q.shape[2])", Usual,
     [](Args* a, Options*) { a->lengths_q = kNegative; }},
    {"PrefixSumsOfAPaddedLayout", kF16, kF16, "cu_q: given, want none (layout BNSD)", Usual,
     [](Args* a, Options*) { a->cu_q = kSums; }},
    {"LengthsOfAPackedLayout", kF16, kF16, "lengths_kv: given, want none (layout TND)",
     [](PromptCase* c) {
       c->layout = Layout::kTND;
       c->lengths_q = c->lengths_kv = {4, 12};
     },
     [](Args* a, Options*) { a->lengths_kv = kSums; }},
    {"MaskTooNarrow", kF16, kF16, "dense_mask.shape[1]=15, want 16",
     [](PromptCase* c) { c->dense_mask = PromptMask::kPlane; },
     [](Args* a, Options*) {
       a->dense_mask.shape = {16, 15};
     }},
    {"MaskOfAnotherBatch", kF16, kF16, "dense_mask.shape[0]=3, want 2",
     [](PromptCase* c) { c->dense_mask = PromptMask::kBatch; }, [](Args* a, Options*) { a->dense_mask.shape[0] = 3; }},
    {"PseTooShort", kF16, kF16, "pse.shape[2]=9, want 16", [](PromptCase* c) { c->pse = true; },
     [](Args* a, Options*) { a->pse.shape[2] = 9; }},
    {"PseType", kI8, kF16, "pse.dtype=bf16, want f16", [](PromptCase* c) { c->pse = true; },
     [](Args* a, Options*) { a->pse.dtype = kBF16; }},
    {"HeadsKv", kF16, kF16, "heads_kv=2, want 1 (k)", Usual, [](Args*, Options* o) { o->heads_kv = 2; }},
    {"NegativeHeadsKv", kF16, kF16, "heads_kv=-1, want 1 (k)", Usual, [](Args*, Options* o) { o->heads_kv = -1; }},
    {"SparseMode5", kF16, kF16, "sparse_mode=5, want 0..4", Usual,
     [](Args*, Options* o) {
       o->mask = *Mask::FromSparseMode(5, 0, 0, {4, 4}, false);
     }},
    {"SparseMode8", kF16, kF16, "sparse_mode=8, want 0..4", Usual, SparseMode<8, 100, 100>},
    {"BandOfBothNegative", kF16, kF16, "mask.pre=-3", Usual, SparseMode<4, -3, -3>},
    {"BandBeyondTheTensors", kF16, kF16, "mask.pre=-16", Usual, SparseMode<4, -16, 40>},
    {"NegativePreOfInt8Output", kI8, kI8, "mask.pre=-2, want >= 0 (out.dtype=i8, sparse_mode 4)", Usual,
     SparseMode<4, -2, 5>},
    {"NegativeNextOfInt8Output", kF16, kI8, "mask.next=-2, want >= 0", Usual, SparseMode<4, 5, -2>},
    {"OffsetWithFewerKeysThanRows", kI8, kI8, "quant_offset2: given, want none where the mask leaves rows without keys",
     [](PromptCase* c) {
       c->with_offset = true;
       c->lengths_q = {4, 9};
       c->lengths_kv = {16, 8};
     },
     SparseMode<3, 0, 0>},
    {"OffsetWithABandPastTheKeys", kF16, kI8, "(batch 1, Sq=16, Sk=4)",
     [](PromptCase* c) {
       c->with_offset = true;
       c->lengths_kv = {16, 4};
     },
     [](Args*, Options* o) { o->mask = Mask::BandTopLeft(5, 5); }},
};

class RefusedPrompt : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedPrompt, NamesTheArgumentAndWritesNothing) {
  PromptCase c;
  c.dtype = GetParam().dtype;
  c.out_dtype = GetParam().out;
  c.batch = 2;
  GetParam().prepare(&c);
  const PromptProblem problem(c);
  PromptAttentionArgs args = problem.args();
  PromptAttentionOptions options = problem.options();
  ASSERT_TRUE(PlanPromptFlashAttention(args, options).ok()) << "the call without its mistake";
  GetParam().make(&args, &options);
  const Status status = PromptFlashAttention(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam().message), std::string::npos) << status.message();
  for (const double value : problem.Outputs()) {
    ASSERT_TRUE(c.out_dtype == kI8 ? value == -1 : std::isnan(value)) << "written";
  }
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RefusedPrompt, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

// A call may have an offset if its mask keeps a key for every row. A call without an offset may have rows without keys.
TEST(PromptErrors, WhatTheDeviceLetsPassPasses) {
  PromptCase c;
  c.dtype = c.out_dtype = DType::kI8;
  c.batch = 2;
  c.with_offset = true;
  c.lengths_q = {16, 9};
  c.lengths_kv = {16, 9};
  for (const int mode : {0, 1, 2, 3, 4}) {
    c.mask = {.mode = mode, .band = false, .pre = 3, .next = 0};
    EXPECT_TRUE(RunsLikeTheReference(c, nullptr)) << "mode " << mode;
  }
  c.with_offset = false;
  c.lengths_kv = {3, 0};
  for (const int mode : {1, 3}) {
    c.mask.mode = mode;
    EXPECT_TRUE(RunsLikeTheReference(c, nullptr)) << "mode " << mode;
  }
}

}  // namespace
}  // namespace fa::test
