// A refused fused inference names the wrong argument and writes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/inference/infer/infer_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// A call that owns its lists, into which tests put mistakes.
struct Call {
  explicit Call(const InferProblem& problem)
      : args(problem.args()),
        options(problem.options()),
        k(args.k.begin(), args.k.end()),
        v(args.v.begin(), args.v.end()) {
    args.k = k;
    args.v = v;
  }
  InferAttentionArgs args;
  InferAttentionOptions options;
  std::vector<TensorView> k, v;
  std::vector<int64_t> lengths;
  int64_t number = 0;
};

enum class Base : uint8_t { kPadded, kPacked, kPages, kNz, kPrefix, kLeft };

/// Returns a call of B=2, N=4, Nkv=2, D=Dv=32, f16, with 3 and 2 rows, and 40 and 20 keys.
InferCase CaseOf(Base base) {
  InferCase c = MakeInferCase(4, 2, {3, 2}, {40, 20}, DType::kF16);
  switch (base) {
    case Base::kPadded: c.layout = Layout::kBNSD_NBSD; break;
    case Base::kPacked: c.layout = Layout::kNTD; break;
    case Base::kPages: c.cache = Cache::kPagesOfHeads; break;
    case Base::kNz: c.cache = Cache::kPagesNz; break;
    case Base::kPrefix: c.prefix_rows = 4; break;
    case Base::kLeft:
      c.padding_q = c.padding_kv = 1;
      c.spare_q = c.spare_k = 1;
      break;
  }
  return c;
}

struct Mistake {
  const char* name;
  Base base;
  const char* message;
  std::function<void(Call*)> make;
};

const TensorView& Byte(Call* call, const Dims& shape) {
  static const int8_t kZeros[64 * 64] = {};
  call->args.dense_mask = {kZeros, DType::kI8, shape, {}};
  return call->args.dense_mask;
}

void GivePadding(Call* call, TensorView InferAttentionArgs::*member, int64_t rows) {
  call->number = rows;
  call->args.*member = {&call->number, DType::kI64, {1}, {}};
}

const Mistake kMistakes[] = {
    {"Layout", Base::kPadded, "layout=SBH, want BSH", [](Call* c) { c->options.layout = Layout::kSBH; }},
    {"UnknownLayout", Base::kPadded, "layout=99, want BSH",
     [](Call* c) { c->options.layout = static_cast<Layout>(99); }},
    {"Mode", Base::kPadded, "sparse_mode=5, want 0..4 or 9", [](Call* c) { c->options.sparse_mode = 5; }},
    {"HeadsKv", Base::kPadded, "heads_kv=4, want 2 (k)", [](Call* c) { c->options.heads_kv = 4; }},
    {"NegativeHeadsKv", Base::kPadded, "heads_kv=-1, want >= 0", [](Call* c) { c->options.heads_kv = -1; }},
    {"Lse", Base::kPadded, "lse_without_keys=0, want -inf or inf", [](Call* c) { c->options.lse_without_keys = 0; }},
    {"OutOfAnotherLayout", Base::kPadded, "out.shape[1]=4, want 2 (q.shape[0])",
     [](Call* c) {
       c->args.out.shape = {2, 4, 3, 32};
     }},
    {"RankOfQuery", Base::kPadded, "q.shape=[2,4,3], want 4 dimensions (BNSD_NBSD)",
     [](Call* c) {
       c->args.q.shape = {2, 4, 3};
       c->args.q.stride = {};
     }},
    {"SumsOfPaddedQueries", Base::kPadded, "cu_q: given, want none (layout BNSD_NBSD)",
     [](Call* c) { c->args.cu_q = c->args.lengths_q; }},
    {"SumsOfPaddedKeys", Base::kPadded, "cu_kv: given, want none (layout BNSD_NBSD)",
     [](Call* c) { c->args.cu_kv = c->args.lengths_q; }},
    {"LengthBeyondTheRows", Base::kPadded, "lengths_kv[1]=41, want 0..40 (k.shape[2])",
     [](Call* c) {
       c->lengths = {40, 41};
       c->args.lengths_kv = c->lengths;
     }},
    {"LengthsOfPackedQueries", Base::kPacked, "lengths_q: given, want none (layout NTD)",
     [](Call* c) { c->args.lengths_q = c->args.cu_q; }},
    {"SumBeyondTheRows", Base::kPacked, "cu_q[1]=6, want <= 5 (q.shape[1])",
     [](Call* c) {
       c->lengths = {3, 6};
       c->args.cu_q = c->lengths;
     }},
    {"SumsThatDecrease", Base::kPacked, "cu_kv[1]=19, want >= 20 (cu_kv[0])",
     [](Call* c) {
       c->lengths = {20, 19};
       c->args.cu_kv = c->lengths;
     }},
    {"PackedList", Base::kPacked, "k has 2 tensors, want 1 (layout NTD)",
     [](Call* c) {
       c->k.push_back(c->k[0]);
       c->v.push_back(c->v[0]);
       c->args.k = c->k;
       c->args.v = c->v;
     }},
    {"SumsOfPages", Base::kPages, "cu_kv: given, want none (block_table: given)",
     [](Call* c) { c->args.cu_kv = c->args.lengths_q; }},
    {"BlockSize", Base::kPages, "block_size=8, want 16 (k.shape[2])", [](Call* c) { c->options.block_size = 8; }},
    {"RankOfPages", Base::kPages, "k.shape=[4,16], want [pages, page size, Nkv * D], [pages, Nkv, page size, D] or [",
     [](Call* c) {
       c->k[0].shape = {4, 16};
       c->k[0].stride = {};
     }},
    {"Page", Base::kPages, "block_table[0][1]=99, want 0..",
     [](Call* c) { const_cast<int32_t*>(static_cast<const int32_t*>(c->args.block_table.data))[1] = 99; }},
    {"Piece", Base::kNz, "k.shape[4]=8, want 16 (32 bytes)",
     [](Call* c) {
       c->k[0].shape[4] = 8;
       c->k[0].stride = {};
     }},
    {"PiecesOfFloats", Base::kNz, "v.shape[4]=8, want 16 (32 bytes)",
     [](Call* c) {
       c->v[0].shape[4] = 8;
       c->v[0].stride = {};
     }},
    {"HalfAPrefix", Base::kPrefix, "v_prefix: missing (k_prefix is given)", [](Call* c) { c->args.v_prefix = {}; }},
    {"LengthOfNoPrefix", Base::kPadded, "length_prefix: given, want none (k_prefix: missing)",
     [](Call* c) { c->args.length_prefix = c->args.lengths_q; }},
    {"LengthOfThePrefix", Base::kPrefix, "length_prefix[0]=5, want 0..4 (k_prefix.shape[2])",
     [](Call* c) {
       c->lengths = {5};
       c->args.length_prefix = c->lengths;
     }},
    {"LengthsOfThePrefix", Base::kPrefix, "length_prefix has 2 entries, want 1",
     [](Call* c) { c->args.length_prefix = c->args.lengths_q; }},
    {"TypeOfThePrefix", Base::kPrefix, "k_prefix.dtype=bf16, want f16 (k.dtype)",
     [](Call* c) { c->args.k_prefix.dtype = DType::kBF16; }},
    {"BatchOfThePrefix", Base::kPrefix, "k_prefix.shape[0]=2, want 1", [](Call* c) { c->args.k_prefix.shape[0] = 2; }},
    {"PrefixAndSplitHeads", Base::kPrefix, "k_prefix: given, want none (q_rope: given)",
     [](Call* c) {
       c->args.q_rope = c->args.q;
       c->args.k_rope = c->args.k;
     }},
    {"PrefixAndPadding", Base::kPrefix, "kv_padding: given, want none (k_prefix: given)",
     [](Call* c) { GivePadding(c, &InferAttentionArgs::kv_padding, 0); }},
    {"PaddingOfPages", Base::kPages, "q_padding: given, want none (block_table: given)",
     [](Call* c) { GivePadding(c, &InferAttentionArgs::q_padding, 0); }},
    {"PaddingOfPackedRows", Base::kPacked, "q_padding: given, want none (layout NTD)",
     [](Call* c) { GivePadding(c, &InferAttentionArgs::q_padding, 0); }},
    {"PaddingWithoutLengths", Base::kLeft, "lengths_q: missing (q_padding is given)",
     [](Call* c) { c->args.lengths_q = {}; }},
    {"TypeOfPadding", Base::kLeft, "q_padding.dtype=i32, want i64",
     [](Call* c) { c->args.q_padding.dtype = DType::kI32; }},
    {"MuchPadding", Base::kLeft, "q_padding[0]=2, want at most 1 (batch element 0)",
     [](Call* c) { GivePadding(c, &InferAttentionArgs::q_padding, 2); }},
    {"MuchPaddingOfKeys", Base::kLeft, "kv_padding[0]=2, want at most 1 (batch element 0)",
     [](Call* c) { GivePadding(c, &InferAttentionArgs::kv_padding, 2); }},
    {"TreeWithoutAMask", Base::kPadded, "dense_mask: missing (sparse_mode 9)",
     [](Call* c) { c->options.sparse_mode = 9; }},
    {"ShapeOfATree", Base::kPadded, "dense_mask.shape=[2,3,4], want [2,3,3] (sparse_mode 9)",
     [](Call* c) {
       c->options.sparse_mode = 9;
       Byte(c, {2, 3, 4});
     }},
    {"ShapeOfPackedTrees", Base::kPacked, "dense_mask.shape=[12], want [13] (sparse_mode 9)",
     [](Call* c) {
       c->options.sparse_mode = 9;
       Byte(c, {12});
     }},
    {"Triangle", Base::kPadded, "dense_mask.shape=[64,64], want [2048,2048]",
     [](Call* c) {
       c->options.sparse_mode = 3;
       Byte(c, {64, 64});
     }},
    {"SmallMask", Base::kPadded, "dense_mask.shape[1]=39, want 40 (k.shape[2])",
     [](Call* c) {
       Byte(c, {3, 39});
     }},
    {"TypeOfTheMask", Base::kPadded, "dense_mask.dtype=f16, want u8, bool or i8",
     [](Call* c) {
       Byte(c, {3, 40});
       c->args.dense_mask.dtype = DType::kF16;
     }},
    {"TypeOfTheSink", Base::kPadded, "sink.dtype=bf16, want f32 or f16 (q.dtype)",
     [](Call* c) {
       c->args.sink = {&c->number, DType::kBF16, {4}, {}};
     }},
    {"SinksPerRow", Base::kLeft, "sink.shape=[2,4,3], want [N]",
     [](Call* c) {
       c->args.sink = {&c->number, DType::kF32, {2, 4, 3}, {}};
     }},
};

class InferMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(InferMistakes, AreNamedAndNothingIsWritten) {
  const InferProblem problem(CaseOf(GetParam().base));
  Call call(problem);
  GetParam().make(&call);
  const Snapshot before = problem.TakeSnapshot();
  const ForwardOutputs untouched = problem.Outputs();
  const Status status = InferAttention(call.args, call.options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_EQ(before.FirstChange(), -1);
  EXPECT_TRUE(SameBits(problem.Outputs(), untouched));
}

INSTANTIATE_TEST_SUITE_P(All, InferMistakes, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Infer, AWrongElementOfATriangleFailsTheRun) {
  InferCase c = MakeInferCase(2, 1, {3}, {40});
  c.dense.mask = {.mode = 3};
  c.full_mask = true;
  const InferProblem problem(c);
  const InferAttentionArgs args = problem.args();
  static_cast<int8_t*>(const_cast<void*>(args.dense_mask.data))[5 * 2048 + 7] = 0;
  const Status status = InferAttention(args, problem.options());
  EXPECT_THAT(std::string(status.message()), HasSubstr("dense_mask[5][7]=0, want 1"));
}

// The operators that do not serve a layout of fused inference refuse it by name.
TEST(Infer, OtherOperatorsRefuseItsLayouts) {
  const InferProblem problem(CaseOf(Base::kPacked));
  DecodeAttentionOptions options{.layout = Layout::kNTD};
  EXPECT_THAT(std::string(DecodeAttention(problem.args(), options).message()), HasSubstr("layout="));
}

}  // namespace
}  // namespace fa::test
