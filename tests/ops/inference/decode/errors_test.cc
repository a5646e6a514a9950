// A refused call of decode names the wrong argument and writes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/inference/decode/decode_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// A call that owns its lists, into which tests put mistakes.
struct Call {
  explicit Call(const DecodeProblem& problem)
      : args(problem.args()),
        options(problem.options()),
        k(args.k.begin(), args.k.end()),
        v(args.v.begin(), args.v.end()) {
    args.k = k;
    args.v = v;
  }
  DecodeAttentionArgs args;
  DecodeAttentionOptions options;
  std::vector<TensorView> k, v;
  std::vector<int64_t> lengths, cu_q;
};

struct Mistake {
  const char* name;
  KeyForm keys;
  const char* message;
  std::function<void(Call*)> make;
};

void SetLengths(Call* call, std::vector<int64_t> lengths) {
  call->lengths = std::move(lengths);
  call->args.lengths_kv = call->lengths;
}

/// Packs the rows of a call with one row per batch element.
void Pack(Call* call, std::vector<int64_t> cu_q) {
  call->cu_q = std::move(cu_q);
  call->options.layout = Layout::kTND;
  call->args.cu_q = call->cu_q;
  call->args.lengths_q = {};
  call->args.q.shape = call->args.out.shape = {2, 4, 24};
  call->args.q.stride = call->args.out.stride = {};
  call->args.lse.shape = {2, 4};
  call->args.lse.stride = {};
}

constexpr KeyForm kOne = KeyForm::kOneTensor, kList = KeyForm::kList, kPages = KeyForm::kPages,
                  kHeads = KeyForm::kPagesOfHeads;

// The mistakes are made in a call of B=2, N=4, Nkv=2, Sq=1, D=Dv=24, f16, with 40 and 20 keys, and pages of 16 rows.
const Mistake kMistakes[] = {
    {"NoQuery", kOne, "q: null data", [](Call* c) { c->args.q.data = nullptr; }},
    {"NoKey", kOne, "k: null data", [](Call* c) { c->k[0].data = nullptr; }},
    {"NoValueOfAList", kList, "v[1]: null data", [](Call* c) { c->v[1].data = nullptr; }},
    {"NoOut", kOne, "out: null data", [](Call* c) { c->args.out.data = nullptr; }},
    {"NoKeys", kOne, "k: missing", [](Call* c) { c->args.k = {}; }},
    {"FewerValuesThanKeys", kList, "v has 1 tensors, want 2 (k)", [](Call* c) { c->args.v = c->args.v.subspan(0, 1); }},
    {"ListOfAnotherNumber", kList, "k has 3 tensors, want 1 or 2 (batch)",
     [](Call* c) {
       c->k.push_back(c->k[0]);
       c->v.push_back(c->v[0]);
       c->args.k = c->k;
       c->args.v = c->v;
     }},
    {"ListOfPages", kPages, "k has 2 tensors, want 1 (with block_table)",
     [](Call* c) {
       c->k.push_back(c->k[0]);
       c->v.push_back(c->v[0]);
       c->args.k = c->k;
       c->args.v = c->v;
     }},
    {"PackedLayout", kOne, "layout=TND, want", [](Call* c) { c->options.layout = Layout::kTND; }},
    {"PackedQueriesWithoutSums", kPages, "cu_q: missing, want inclusive prefix sums", [](Call* c) { Pack(c, {}); }},
    {"PackedQueriesPastTheEnd", kPages, "cu_q[1]=3, want <= 2 (q.shape[0])",
     [](Call* c) {
       Pack(c, {1, 3});
     }},
    {"PackedQueriesThatGoBack", kPages, "cu_q[1]=1, want >= 2 (cu_q[0])",
     [](Call* c) {
       Pack(c, {2, 1});
     }},
    {"PackedQueriesOfOtherSequences", kPages, "block_table.shape[0]=2, want 3 (batch)",
     [](Call* c) {
       Pack(c, {1, 1, 2});
     }},
    {"PackedQueriesWithLengths", kPages, "lengths_q: given, want none (layout TND)",
     [](Call* c) {
       Pack(c, {1, 2});
       c->args.lengths_q = c->cu_q;
     }},
    {"SumsOfQueriesThatAreNotPacked", kPages, "cu_q: given, want none (layout BNSD)",
     [](Call* c) {
       c->cu_q = {1, 2};
       c->args.cu_q = c->cu_q;
     }},
    {"PackedMaskTooNarrow", kPages, "dense_mask.shape[3]=39, want 40 (longest key sequence)",
     [](Call* c) {
       Pack(c, {1, 2});
       c->args.dense_mask = {c->args.q.data, DType::kU8, {2, 1, 1, 39}, {}};
     }},
    {"PackedMaskOfAnotherBatch", kPages, "dense_mask.shape[0]=3, want 2 (number of sequences)",
     [](Call* c) {
       Pack(c, {1, 2});
       c->args.dense_mask = {c->args.q.data, DType::kU8, {3, 1, 1, 40}, {}};
     }},
    {"PackedMaskOfFewerRows", kPages, "dense_mask.shape[2]=2, want 3 (longest query sequence)",
     [](Call* c) {
       Pack(c, {0, 3});
       c->args.q.shape = c->args.out.shape = {3, 4, 24};
       c->args.lse.shape = {3, 4};
       c->args.dense_mask = {c->args.q.data, DType::kU8, {2, 1, 2, 40}, {}};
     }},
    {"PackedBiasTooNarrow", kPages, "pse.shape[3]=39, want 40 (longest key sequence)",
     [](Call* c) {
       Pack(c, {1, 2});
       c->args.pse = {c->args.q.data, DType::kF16, {2, 4, 1, 39}, {}};
     }},
    {"PackedBiasOfFewerRows", kPages, "pse.shape[2]=2, want 3 (longest query sequence)",
     [](Call* c) {
       Pack(c, {0, 3});
       c->args.q.shape = c->args.out.shape = {3, 4, 24};
       c->args.lse.shape = {3, 4};
       c->args.pse = {c->args.q.data, DType::kF16, {2, 4, 2, 40}, {}};
     }},
    {"MoreQueriesThanKeysOfAPackedSequence", kPages, "lengths_kv[0]: want at least as many keys as queries",
     [](Call* c) {
       Pack(c, {1, 2});
       SetLengths(c, {0, 20});
       c->options.mask = *Mask::FromSparseMode(3, 0, 0, {}, false);
     }},
    {"QueryOfAnotherRank", kPages, "q.shape=[2,4,24], want 4 dimensions",
     [](Call* c) {
       c->args.q.shape = {2, 4, 24};
     }},
    {"QueryOfAnotherType", kOne, "q.dtype=u8, want f32, f16, bf16 or i8",
     [](Call* c) { c->args.q.dtype = DType::kU8; }},
    {"QueryOfInt8", kOne, "k.dtype=f16, want i8 (q.dtype)", [](Call* c) { c->args.q.dtype = DType::kI8; }},
    {"KeyOfAnotherType", kOne, "k.dtype=bf16, want f16 (q.dtype), i8, f8e4m3, f8e5m2 or i4x8",
     [](Call* c) { c->k[0].dtype = DType::kBF16; }},
    {"ValueOfTheOtherType", kList, "v[1].dtype=i8, want f16 (k[0].dtype)", [](Call* c) { c->v[1].dtype = DType::kI8; }},
    {"KeyOfAnotherHeadSize", kOne, "k.shape[3]=23, want 24 (q.shape[3])", [](Call* c) { c->k[0].shape[3] = 23; }},
    {"KeyOfAnotherBatch", kOne, "k.shape[0]=3, want 2 (q.shape[0])", [](Call* c) { c->k[0].shape[0] = 3; }},
    {"KeyHeadsThatDoNotDivide", kOne, "k.shape[1]=3, want a divisor of 4", [](Call* c) { c->k[0].shape[1] = 3; }},
    {"ListedKeyOfABatch", kList, "k[1].shape[0]=2, want 1", [](Call* c) { c->k[1].shape[0] = 2; }},
    {"ListedKeyOfAnotherHeadSize", kList, "k[1].shape[3]=20, want 24 (k[0])", [](Call* c) { c->k[1].shape[3] = 20; }},
    {"ListedValueOfAnotherLength", kList, "v[1].shape[2]=21, want 20 (k[1].shape[2])",
     [](Call* c) { c->v[1].shape[2] = 21; }},
    {"ListedKeyOfAnotherRank", kList, "k[1].shape=[1,2,20], want 4 dimensions",
     [](Call* c) {
       c->k[1].shape = {1, 2, 20};
     }},
    {"InnerStrideTwo", kOne, "k.stride[3]=2, want 1 (innermost)", [](Call* c) { c->k[0].stride[3] = 2; }},
    {"PagesOfRankTwo", kPages, "k.shape=[8,16], want [pages, page size, Nkv * D]",
     [](Call* c) {
       c->k[0].shape = {8, 16};
     }},
    {"PagesOfFusedHeadsThatDoNotDivide", kPages, "k.shape[2]=47, want a multiple of 24",
     [](Call* c) { c->k[0].shape[2] = 47; }},
    {"ValuePagesOfAnotherSize", kPages, "v.shape[1]=15, want 16 (k.shape[1])", [](Call* c) { c->v[0].shape[1] = 15; }},
    {"ValuePagesOfAnotherNumber", kHeads, "v.shape[0]=7, want 8 (k.shape[0])", [](Call* c) { c->v[0].shape[0] = 7; }},
    {"EmptyPages", kPages, "k.shape[1]=0, want >= 1",
     [](Call* c) {
       c->k[0].shape[1] = 0;
       c->v[0].shape[1] = 0;
     }},
    {"TableOfAnotherType", kPages, "block_table.dtype=i64, want i32",
     [](Call* c) { c->args.block_table.dtype = DType::kI64; }},
    {"TableOfAnotherRank", kPages, "block_table.shape=[10], want [B, pages]",
     [](Call* c) {
       c->args.block_table.shape = {10};
       c->args.block_table.stride = {};
     }},
    {"TableOfAnotherBatch", kPages, "block_table.shape[0]=1, want 2 (batch)",
     [](Call* c) { c->args.block_table.shape[0] = 1; }},
    {"PagesWithoutLengths", kPages, "lengths_kv: missing", [](Call* c) { c->args.lengths_kv = {}; }},
    {"LengthBeyondTheTable", kPages, "lengths_kv[1]=81, want 0..80 (block_table.shape[1] pages of 16)",
     [](Call* c) {
       SetLengths(c, {40, 81});
     }},
    {"LengthBeyondTheTensor", kOne, "lengths_kv[0]=41, want 0..40 (k.shape[2])",
     [](Call* c) {
       SetLengths(c, {41, 20});
     }},
    {"LengthBeyondTheListed", kList, "lengths_kv[1]=21, want 0..20 (rows of k[1])",
     [](Call* c) {
       SetLengths(c, {40, 21});
     }},
    {"NegativeLength", kPages, "lengths_kv[0]=-1, want 0..80",
     [](Call* c) {
       SetLengths(c, {-1, 20});
     }},
    {"PageThatDoesNotExist", kPages, "block_table[1][1]=8, want 0..7 (k.shape[0])", nullptr},
    {"NegativePage", kPages, "block_table[1][1]=-1, want 0..7 (k.shape[0])", nullptr},
    {"ScaleOfFloatKeys", kOne, "antiquant_scale: given, want none (k.dtype is f16)",
     [](Call* c) {
       c->args.antiquant_scale = {c->args.q.data, DType::kF32, {2}, {}};
     }},
    {"OffsetOfFloatKeys", kOne, "antiquant_offset: given, want none (k.dtype is f16)",
     [](Call* c) {
       c->args.antiquant_offset = {c->args.q.data, DType::kF32, {2}, {}};
     }},
    {"MaskTooNarrow", kOne, "dense_mask.shape[3]=39, want 40",
     [](Call* c) {
       c->args.dense_mask = {c->args.q.data, DType::kU8, {2, 39}, {}};
     }},
    {"MaskOfAnotherType", kOne, "dense_mask.dtype=f16, want u8, bool or i8",
     [](Call* c) {
       c->args.dense_mask = {c->args.q.data, DType::kF16, {2, 40}, {}};
     }},
    {"MaskOfAnotherBatch", kOne, "dense_mask.shape[0]=3, want 2",
     [](Call* c) {
       c->args.dense_mask = {c->args.q.data, DType::kU8, {3, 40}, {}};
     }},
    {"SinkOfAnotherHeads", kPages, "sink.shape[0]=3, want 4",
     [](Call* c) {
       c->args.sink = {c->args.q.data, DType::kF32, {3}, {}};
     }},
    {"SinkOfAnotherType", kOne, "sink.dtype=f16, want f32",
     [](Call* c) {
       c->args.sink = {c->args.q.data, DType::kF16, {4}, {}};
     }},
    {"PseOfAnotherHeads", kPages, "pse.shape[1]=3, want 4",
     [](Call* c) {
       c->args.pse = {c->args.q.data, DType::kF16, {2, 3, 1, 40}, {}};
     }},
    {"PseTooNarrow", kPages, "pse.shape[3]=39, want 40 (longest key sequence)",
     [](Call* c) {
       c->args.pse = {c->args.q.data, DType::kF16, {2, 4, 1, 39}, {}};
     }},
    {"PseOfAnotherType", kOne, "pse.dtype=i8",
     [](Call* c) {
       c->args.pse = {c->args.q.data, DType::kI8, {2, 4, 1, 40}, {}};
     }},
    {"OutOfAnotherType", kOne, "out.dtype=f32, want f16 (q.dtype) or i8",
     [](Call* c) { c->args.out.dtype = DType::kF32; }},
    {"Int8OutWithoutScale", kOne, "quant_scale2: missing, want it (out.dtype=i8)",
     [](Call* c) { c->args.out.dtype = DType::kI8; }},
    {"ScaleOfAFloatOut", kPages, "quant_scale2: given, want none (out.dtype=f16)",
     [](Call* c) {
       c->args.quant_scale2 = {c->args.q.data, DType::kF32, {1}, {}};
     }},
    {"LseOfAnotherType", kOne, "lse.dtype=f16, want f32", [](Call* c) { c->args.lse.dtype = DType::kF16; }},
    {"OutOfAnotherHeadSize", kOne, "out.shape[3]=23, want 24", [](Call* c) { c->args.out.shape[3] = 23; }},
    {"OutIsQuery", kOne, "out: shares memory with q",
     [](Call* c) { c->args.out.data = const_cast<void*>(c->args.q.data); }},
    {"OutIsAValue", kList, "out: shares memory with v[1]",
     [](Call* c) { c->args.out.data = const_cast<void*>(c->v[1].data); }},
    {"LseIsAPage", kPages, "lse: shares memory with k",
     [](Call* c) { c->args.lse.data = const_cast<void*>(c->k[0].data); }},
    {"ScaleNaN", kOne, "scale=nan, want a finite number", [](Call* c) { c->options.scale = NAN; }},
    {"HeadsDisagree", kOne, "heads=3, want 4", [](Call* c) { c->options.heads = 3; }},
};

DecodeCase Spoilt(KeyForm keys) {
  DecodeCase c = MakeDecodeCase(4, 2, 1, {40, 20}, DType::kF16);
  c.keys = keys;
  return c;
}

class RefusedDecode : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedDecode, NamesTheArgumentAndWritesNothing) {
  const Mistake& mistake = GetParam();
  const DecodeProblem problem(Spoilt(mistake.keys));
  Call call(problem);
  if (mistake.make != nullptr) mistake.make(&call);
  if (std::string(mistake.name) == "PageThatDoesNotExist") problem.SetTableEntry(1, 1, 8);
  if (std::string(mistake.name) == "NegativePage") problem.SetTableEntry(1, 1, -1);
  const Snapshot before = problem.TakeSnapshot();
  const ForwardOutputs untouched = problem.Outputs();
  const Status status = DecodeAttention(call.args, call.options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  EXPECT_EQ(before.FirstChange(), -1);
  EXPECT_TRUE(SameBits(problem.Outputs(), untouched));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedDecode, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(RefusedSplitHeads, NameTheArgument) {
  struct RopeMistake {
    KeyForm keys;
    const char* message;
    std::function<void(DecodeAttentionArgs*, std::vector<TensorView>* k_rope)> make;
  };
  const RopeMistake mistakes[] = {
      {kOne, "k_rope: missing (q_rope is given)", [](auto* a, auto*) { a->k_rope = {}; }},
      {kOne, "q_rope: missing (k_rope is given)", [](auto* a, auto*) { a->q_rope = {}; }},
      {kOne, "q_rope.dtype=bf16, want f16 (q.dtype)", [](auto* a, auto*) { a->q_rope.dtype = DType::kBF16; }},
      {kList, "k_rope[1].dtype=i8, want f16 (q.dtype)", [](auto*, auto* r) { (*r)[1].dtype = DType::kI8; }},
      {kOne, "k_rope: null data", [](auto*, auto* r) { (*r)[0].data = nullptr; }},
      {kList, "k_rope has 1 tensors, want 2 (k)", [](auto* a, auto*) { a->k_rope = a->k_rope.subspan(0, 1); }},
      {kOne, "k_rope.shape[3]=7, want 8 (q_rope.shape[3])", [](auto*, auto* r) { (*r)[0].shape[3] = 7; }},
      {kOne, "k_rope.shape[2]=39, want 40 (k.shape[2])", [](auto*, auto* r) { (*r)[0].shape[2] = 39; }},
      {kList, "k_rope[1].shape[2]=19, want 20 (k[1].shape[2])", [](auto*, auto* r) { (*r)[1].shape[2] = 19; }},
      {kPages, "k_rope.shape[1]=15, want 16 (k.shape[1])", [](auto*, auto* r) { (*r)[0].shape[1] = 15; }},
      {kPages, "k_rope.shape[2]=15, want a multiple of 2 (heads of k)", [](auto*, auto* r) { (*r)[0].shape[2] = 15; }},
      {kHeads, "k_rope.shape[1]=1, want 2", [](auto*, auto* r) { (*r)[0].shape[1] = 1; }},
  };
  for (const RopeMistake& mistake : mistakes) {
    DecodeCase c = Spoilt(mistake.keys);
    c.dense.d_rope = 8;
    const DecodeProblem problem(c);
    DecodeAttentionArgs args = problem.args();
    std::vector<TensorView> k_rope(args.k_rope.begin(), args.k_rope.end());
    args.k_rope = k_rope;
    mistake.make(&args, &k_rope);
    const Snapshot before = problem.TakeSnapshot();
    const ForwardOutputs untouched = problem.Outputs();
    const Status status = DecodeAttention(args, problem.options());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
    EXPECT_EQ(before.FirstChange(), -1);
    EXPECT_TRUE(SameBits(problem.Outputs(), untouched));
  }
  DecodeCase quantized = Spoilt(kOne);
  quantized.quantization = Quantization::kPerTensor;
  DecodeCase split = Spoilt(kOne);
  split.dense.d_rope = 8;
  const DecodeProblem int8(quantized), ropes(split);
  DecodeAttentionArgs args = int8.args();
  const DecodeAttentionArgs other = ropes.args();
  args.q_rope = other.q_rope;
  args.k_rope = other.k_rope;
  EXPECT_THAT(std::string(DecodeAttention(args, int8.options()).message()),
              HasSubstr("k_rope: given, want none (k.dtype is i8)"));
}

struct Int8Mistake {
  const char* name;
  const char* message;
  std::function<void(DecodeAttentionArgs*, DecodeAttentionOptions*)> make;
};

const Int8Mistake kInt8Mistakes[] = {
    {"NoScale", "antiquant_scale: missing (k.dtype is i8)",
     [](DecodeAttentionArgs* a, DecodeAttentionOptions*) { a->antiquant_scale.data = nullptr; }},
    {"ScaleOfAnotherType", "antiquant_scale.dtype=i8, want f32, f16 or bf16",
     [](DecodeAttentionArgs* a, DecodeAttentionOptions*) { a->antiquant_scale.dtype = DType::kI8; }},
    {"ScaleOfAnotherShape", "antiquant_scale.shape=[3], want [2], [2,2,24] or [2,48]",
     [](DecodeAttentionArgs* a, DecodeAttentionOptions*) {
       a->antiquant_scale.shape = {3};
       a->antiquant_scale.stride = {};
     }},
    {"OffsetOfAnotherShape", "antiquant_offset.shape=[2], want [2,2,24] (antiquant_scale)",
     [](DecodeAttentionArgs* a, DecodeAttentionOptions*) {
       a->antiquant_offset.shape = {2};
       a->antiquant_offset.stride = {};
     }},
    {"ChannelsForTokens", "antiquant_scale.shape=[2,2,24], want [2,2,40] or [2,2,2,40] (one per key)",
     [](DecodeAttentionArgs*, DecodeAttentionOptions* o) { o->antiquant = Antiquant::kPerToken; }},
    {"ChannelsOfHeadsOfTwoSizes", "want [2] (heads of v have another size",
     [](DecodeAttentionArgs* a, DecodeAttentionOptions*) { a->out.shape[3] = 12; }},
};

class RefusedInt8Decode : public ::testing::TestWithParam<Int8Mistake> {};

TEST_P(RefusedInt8Decode, NamesTheArgumentAndWritesNothing) {
  DecodeCase c = Spoilt(KeyForm::kOneTensor);
  c.quantization = Quantization::kPerChannel;
  const DecodeProblem problem(c);
  DecodeAttentionArgs args = problem.args();
  DecodeAttentionOptions options = problem.options();
  GetParam().make(&args, &options);
  TensorView value = args.v[0];
  if (args.out.shape[3] == 12) {
    value.shape[3] = 12;
    args.v = {&value, 1};
  }
  const ForwardOutputs untouched = problem.Outputs();
  const Status status = DecodeAttention(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_TRUE(SameBits(problem.Outputs(), untouched));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedInt8Decode, ::testing::ValuesIn(kInt8Mistakes),
                         [](const auto& info) { return info.param.name; });

// A table of 2^59 pages of 16 rows is long enough for any length. Its 2^63 rows exceed int64_t.
TEST(DecodePlan, TakesATableOfMoreRowsThanCanBeCounted) {
  const DecodeProblem problem(Spoilt(KeyForm::kPages));
  DecodeAttentionArgs args = problem.args();
  args.block_table.shape[1] = int64_t{1} << 59;
  const auto plan = PlanDecodeAttention(args, problem.options());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
}

TEST(DecodePlanErrors, AnotherCallThanPlanned) {
  DecodeCase c = Spoilt(KeyForm::kPages);
  const DecodeProblem problem(c);
  const auto plan = PlanDecodeAttention(problem.args(), problem.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::vector<int64_t> lengths = {40, 19};
  DecodeAttentionArgs args = problem.args();
  args.lengths_kv = lengths;
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("lengths_kv[1]=19, want 20 (as planned)"));
  args = problem.args();
  args.block_table.data = nullptr;
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("block_table: null data"));
}

}  // namespace
}  // namespace fa::test
