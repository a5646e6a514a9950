// A refused call of sparse attention names the wrong argument and writes nothing. A plan refuses to run a different
// call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "ops/sparse/sparse_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// Returns a valid case into which tests put mistakes: B=2, N=3, S1=5, S2=40, D=16, Drope=8, Dv=24, K=8, f16.
SparseCase Spoilt(Layout layout = Layout::kBSND, int64_t page_rows = 0) {
  SparseCase c{.heads = 3, .d = 16, .d_rope = 8, .dv = 24};
  c.tokens.dtype = DType::kF16;
  c.tokens.layout = layout;
  c.tokens.page_rows = page_rows;
  c.tokens.lengths = {{5, 5}, {40, 40}};
  return c;
}

constexpr int64_t kTooMany[] = {5, 41}, kNegative[] = {-1, 40}, kOneLength[] = {5}, kDescending[] = {7, 5},
                  kPerBatch[] = {5, 5}, kBeyond[] = {5, 11}, kThree[] = {5, 10, 10};

struct Mistake {
  const char* name;
  const char* message;
  std::function<void(SparseAttentionArgs*, SparseAttentionOptions*)> make;
  Layout layout = Layout::kBSND;
  int64_t page_rows = 0;
};

using Args = SparseAttentionArgs;
using Options = SparseAttentionOptions;
constexpr Layout kPadded = Layout::kBSND, kPacked = Layout::kTND;

const Mistake kMistakes[] = {
    {"NoQuery", "q: missing", [](Args* a, Options*) { a->q = {}; }},
    {"NoDataOfQuery", "q: null data", [](Args* a, Options*) { a->q.data = nullptr; }},
    {"NoKey", "k: null data", [](Args* a, Options*) { a->k.data = nullptr; }},
    {"NoLists", "sparse_indices: null data", [](Args* a, Options*) { a->sparse_indices.data = nullptr; }},
    {"NoOut", "out: null data", [](Args* a, Options*) { a->out.data = nullptr; }},
    {"NoKeyRope", "k_rope: missing, want it with q_rope", [](Args* a, Options*) { a->k_rope.data = nullptr; }},
    {"NoQueryRope", "k_rope: given, want none without q_rope", [](Args* a, Options*) { a->q_rope.data = nullptr; }},
    {"AnotherLayout", "layout=BNSD, want BSND or TND", [](Args*, Options* o) { o->layout = Layout::kBNSD; }},
    {"AnotherMask", "mask=4, want none (0) or right-down causal (3)",
     [](Args*, Options* o) { o->mask = static_cast<SparseMask>(4); }},
    {"BlocksOfNothing", "block_size=0, want 1..128", [](Args*, Options* o) { o->block_size = 0; }},
    {"BlocksTooLarge", "block_size=129, want 1..128", [](Args*, Options* o) { o->block_size = 129; }},
    {"HeadMeanOfBlocks", "block_size=8, want 1 (p_head_mean)", [](Args*, Options* o) { o->block_size = 8; }},
    {"ScaleNan", "scale=nan, want a finite number", [](Args*, Options* o) { o->scale = NAN; }},
    {"QueryOfAnotherType", "q.dtype=i8, want f32, f16 or bf16", [](Args* a, Options*) { a->q.dtype = DType::kI8; }},
    {"KeyOfAnotherType", "k.dtype=bf16, want f16 (q.dtype)", [](Args* a, Options*) { a->k.dtype = DType::kBF16; }},
    {"ValueOfAnotherType", "v.dtype=f32, want f16", [](Args* a, Options*) { a->v.dtype = DType::kF32; }},
    {"ListsOfAnotherType", "sparse_indices.dtype=f32, want i32 or i64",
     [](Args* a, Options*) { a->sparse_indices.dtype = DType::kF32; }},
    {"OutOfAnotherType", "out.dtype=f32, want f16 (q.dtype)", [](Args* a, Options*) { a->out.dtype = DType::kF32; }},
    {"MaxOfAnotherType", "softmax_max.dtype=f16, want f32",
     [](Args* a, Options*) { a->softmax_max.dtype = DType::kF16; }},
    {"SumOfAnotherType", "softmax_sum.dtype=f16, want f32",
     [](Args* a, Options*) { a->softmax_sum.dtype = DType::kF16; }},
    {"HeadMeanOfAnotherType", "p_head_mean.dtype=f16, want f32",
     [](Args* a, Options*) { a->p_head_mean.dtype = DType::kF16; }},
    {"QueryOfAnotherRank", "q.shape=[2,5,48], want 4 dimensions (BSND)",
     [](Args* a, Options*) {
       a->q.shape = {2, 5, 48};
     }},
    {"ValueOfNineDimensions", "v.shape=",
     [](Args* a, Options*) {
       a->v.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
       a->v.stride = {};
     }},
    {"QueryRopeOfNineDimensions", "q_rope.shape=",
     [](Args* a, Options*) {
       a->q_rope.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
       a->q_rope.stride = {};
     }},
    {"KeyOfAnotherBatch", "k.shape[0]=3, want 2 (q.shape[0])", [](Args* a, Options*) { a->k.shape[0] = 3; }},
    {"KeyOfTwoHeads", "k.shape[2]=2, want 1 (one key head)", [](Args* a, Options*) { a->k.shape[2] = 2; }},
    {"KeyOfAnotherHeadSize", "k.shape[3]=15, want 16 (q.shape[3])", [](Args* a, Options*) { a->k.shape[3] = 15; }},
    {"ValueOfAnotherLength", "v.shape[1]=39, want 40 (k.shape[1])", [](Args* a, Options*) { a->v.shape[1] = 39; }},
    {"QueryRopeOfOtherHeads", "q_rope.shape[2]=2, want 3 (q.shape[2])",
     [](Args* a, Options*) { a->q_rope.shape[2] = 2; }},
    {"KeyRopeOfAnotherSize", "k_rope.shape[3]=7, want 8 (q_rope.shape[3])",
     [](Args* a, Options*) { a->k_rope.shape[3] = 7; }},
    {"ListsOfTwoHeads", "sparse_indices.shape[2]=2, want 1 (one list per token)",
     [](Args* a, Options*) { a->sparse_indices.shape[2] = 2; }},
    {"ListsOfOtherRows", "sparse_indices.shape[1]=4, want 5 (q.shape[1])",
     [](Args* a, Options*) { a->sparse_indices.shape[1] = 4; }},
    {"ListsOfAnotherRank", "sparse_indices.shape=[2,5,8], want 4 dimensions (BSND)",
     [](Args* a, Options*) {
       a->sparse_indices.shape = {2, 5, 8};
       a->sparse_indices.stride = {};
     }},
    {"OutOfAnotherHeadSize", "out.shape[3]=23, want 24 (v.shape[3])", [](Args* a, Options*) { a->out.shape[3] = 23; }},
    {"OutWiderThanKey", "out.shape[3]=24, want 1..16 (columns of k, without v)", [](Args* a, Options*) { a->v = {}; }},
    {"MaxOfAnotherShape", "softmax_max.shape[1]=5, want 1",
     [](Args* a, Options*) {
       a->softmax_max.shape = {2, 5, 1, 3};
       a->softmax_max.stride = {};
     }},
    {"SumOfOtherHeads", "softmax_sum.shape[3]=4, want 3",
     [](Args* a, Options*) {
       a->softmax_sum.shape[3] = 4;
       a->softmax_sum.stride = {};
     }},
    {"HeadMeanOfOtherEntries", "p_head_mean.shape[2]=7, want 8 (sparse_indices.shape[3])",
     [](Args* a, Options*) { a->p_head_mean.shape[2] = 7; }},
    {"InnerStride", "k.stride[3]=2, want 1 (innermost)", [](Args* a, Options*) { a->k.stride[3] = 2; }},
    {"OutOntoItself", "out.stride=[360,0,24,1], want strides that keep its elements apart",
     [](Args* a, Options*) { a->out.stride[1] = 0; }},
    {"OutIsQuery", "out: shares memory with q", [](Args* a, Options*) { a->out.data = const_cast<void*>(a->q.data); }},
    {"OutIsTheLists", "out: shares memory with sparse_indices",
     [](Args* a, Options*) { a->out.data = const_cast<void*>(a->sparse_indices.data); }},
    {"MaxIsSum", "softmax_sum: shares memory with softmax_max",
     [](Args* a, Options*) { a->softmax_sum.data = a->softmax_max.data; }},
    {"HeadMeanIsOut", "p_head_mean: shares memory with out",
     [](Args* a, Options*) { a->p_head_mean.data = a->out.data; }},
    {"LengthBeyondTheTensor", "lengths_kv[1]=41, want 0..40 (k.shape[1])",
     [](Args* a, Options*) { a->lengths_kv = kTooMany; }},
    {"NegativeLength", "lengths_q[0]=-1, want 0..5 (q.shape[1])", [](Args* a, Options*) { a->lengths_q = kNegative; }},
    {"TooFewLengths", "lengths_q has 1 entries, want 2 (batch)", [](Args* a, Options*) { a->lengths_q = kOneLength; }},
    {"PackedWithoutLengths", "lengths_q: missing, want inclusive prefix sums (layout TND)",
     [](Args* a, Options*) { a->lengths_q = {}; }, kPacked},
    {"PackedLengthsOfABatch", "lengths_q[1]=5, want 10 (q.shape[0]): looks like per-batch lengths",
     [](Args* a, Options*) { a->lengths_q = kPerBatch; }, kPacked},
    {"PackedLengthsDescend", "lengths_q[1]=5, want >= 7 (lengths_q[0])",
     [](Args* a, Options*) { a->lengths_q = kDescending; }, kPacked},
    {"PackedLengthBeyondTheTensor", "lengths_q[1]=11, want <= 10 (q.shape[0])",
     [](Args* a, Options*) { a->lengths_q = kBeyond; }, kPacked},
    {"PackedLengthsOfOtherNumbers", "lengths_kv has 2 entries, want 3 (lengths_q)",
     [](Args* a, Options*) { a->lengths_q = kThree; }, kPacked},
    {"PackedMaxOfBatches", "softmax_max.shape=[2,1,5,3], want 3 dimensions (TND)",
     [](Args* a, Options*) {
       a->softmax_max.shape = {2, 1, 5, 3};
       a->softmax_max.stride = {};
     },
     kPacked},
    {"PagesWithoutLengths", "lengths_kv: missing, want the lengths of paged keys",
     [](Args* a, Options*) { a->lengths_kv = {}; }, kPadded, 16},
    {"LengthBeyondTheTable", "lengths_kv[1]=81, want 0..80",
     [](Args* a, Options*) {
       static constexpr int64_t kLengths[] = {40, 81};
       a->lengths_kv = kLengths;
     },
     kPadded, 16},
    {"TableOfAnotherType", "block_table.dtype=i64, want i32",
     [](Args* a, Options*) { a->block_table.dtype = DType::kI64; }, kPadded, 16},
    {"TableOfAnotherBatch", "block_table.shape[0]=1, want 2 (q.shape[0])",
     [](Args* a, Options*) { a->block_table.shape[0] = 1; }, kPadded, 16},
    {"PackedTableOfAnotherBatch", "block_table.shape[0]=1, want 2 (lengths_q)",
     [](Args* a, Options*) {
       a->block_table.shape[0] = 1;
       // Two lengths are given, but the table has a row for only one sequence.
       static constexpr int64_t kLengths[] = {40, 40};
       a->lengths_kv = kLengths;
     },
     kPacked, 16},
    {"ValuePagesOfAnotherSize", "v.shape[1]=15, want 16 (k.shape[1])", [](Args* a, Options*) { a->v.shape[1] = 15; },
     kPadded, 16},
    {"KeyRopePagesOfAnotherNumber", "k_rope.shape[0]=8, want 9 (k.shape[0])",
     [](Args* a, Options*) { a->k_rope.shape[0] = 8; }, kPadded, 16},
};

class RefusedSparse : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedSparse, NamesTheArgumentAndWritesNothing) {
  const Mistake& mistake = GetParam();
  const SparseCall call(Spoilt(mistake.layout, mistake.page_rows));
  SparseAttentionArgs args = call.args();
  SparseAttentionOptions options = call.options();
  mistake.make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = SparseFlashAttention(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSparse, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

struct GradMistake {
  const char* name;
  const char* message;
  std::function<void(SparseAttentionGradArgs*)> make;
};

using GradArgs = SparseAttentionGradArgs;

const GradMistake kGradMistakes[] = {
    {"NoOut", "out: null data", [](GradArgs* a) { a->out.data = nullptr; }},
    {"NoGradientOfOut", "d_out: null data", [](GradArgs* a) { a->d_out.data = nullptr; }},
    {"NoMax", "softmax_max: null data", [](GradArgs* a) { a->softmax_max.data = nullptr; }},
    {"NoSum", "softmax_sum: null data", [](GradArgs* a) { a->softmax_sum.data = nullptr; }},
    {"NoDq", "dq: null data", [](GradArgs* a) { a->dq.data = nullptr; }},
    {"NoDk", "dk: null data", [](GradArgs* a) { a->dk.data = nullptr; }},
    {"NoDv", "dv: missing, want it with v", [](GradArgs* a) { a->dv = {}; }},
    {"NoDataOfDv", "dv: missing, want it with v", [](GradArgs* a) { a->dv.data = nullptr; }},
    {"DvWithoutValue", "dv: given, want none without v",
     [](GradArgs* a) {
       a->v = {};
       a->out.shape[3] = a->d_out.shape[3] = 16;
     }},
    {"NoDqRope", "dq_rope: missing, want it with q_rope", [](GradArgs* a) { a->dq_rope = {}; }},
    {"NoDkRope", "dk_rope: missing, want it with q_rope", [](GradArgs* a) { a->dk_rope = {}; }},
    {"DkRopeWithoutRope", "given, want none without q_rope",
     [](GradArgs* a) {
       a->q_rope = {};
       a->k_rope = {};
     }},
    {"OutOfAnotherType", "out.dtype=f32, want f16 (q.dtype)", [](GradArgs* a) { a->out.dtype = DType::kF32; }},
    {"GradientOfOutOfAnotherShape", "d_out.shape[3]=23, want 24 (v.shape[3])",
     [](GradArgs* a) { a->d_out.shape[3] = 23; }},
    {"MaxOfAnotherType", "softmax_max.dtype=f16, want f32", [](GradArgs* a) { a->softmax_max.dtype = DType::kF16; }},
    {"SumOfOtherHeads", "softmax_sum.shape[3]=4, want 3", [](GradArgs* a) { a->softmax_sum.shape[3] = 4; }},
    {"DqOfAnotherType", "dq.dtype=f32, want f16 (q.dtype)", [](GradArgs* a) { a->dq.dtype = DType::kF32; }},
    {"DkOfAnotherLength", "dk.shape[1]=39, want 40 (k.shape[1])", [](GradArgs* a) { a->dk.shape[1] = 39; }},
    {"DvOfAnotherHeadSize", "dv.shape[3]=23, want 24 (v.shape[3])", [](GradArgs* a) { a->dv.shape[3] = 23; }},
    {"DkRopeOfAnotherSize", "dk_rope.shape[3]=7, want 8 (q_rope.shape[3])",
     [](GradArgs* a) { a->dk_rope.shape[3] = 7; }},
    {"DkOntoItself", "dk.stride=[640,0,16,1], want strides that keep its elements apart",
     [](GradArgs* a) { a->dk.stride[1] = 0; }},
    {"DqIsQuery", "dq: shares memory with q", [](GradArgs* a) { a->dq.data = const_cast<void*>(a->q.data); }},
    {"DkIsKey", "dk: shares memory with k", [](GradArgs* a) { a->dk.data = const_cast<void*>(a->k.data); }},
    {"DvIsGradientOfOut", "dv: shares memory with d_out",
     [](GradArgs* a) { a->dv.data = const_cast<void*>(a->d_out.data); }},
    {"DkRopeIsDqRope", "dk_rope: shares memory with dq_rope", [](GradArgs* a) { a->dk_rope.data = a->dq_rope.data; }},
};

class RefusedSparseGrad : public ::testing::TestWithParam<GradMistake> {};

TEST_P(RefusedSparseGrad, NamesTheArgumentAndWritesNothing) {
  const SparseGradCall call(Spoilt());
  SparseAttentionGradArgs args = call.args();
  GetParam().make(&args);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = SparseFlashAttentionGrad(args, call.options());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSparseGrad, ::testing::ValuesIn(kGradMistakes),
                         [](const auto& info) { return info.param.name; });

/// Expects that a call is refused with the message and writes nothing. Call is SparseCall or SparseGradCall.
template <typename Call>
void ExpectRefused(const Call& call, const char* message) {
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  for (const int threads : {1, 3}) {
    const Status status = call.Run(ContextOf(DetectIsa(), threads));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EXPECT_EQ(before.FirstChange(), -1);
}

struct BadEntry {
  Layout layout;
  int64_t block_size, b, t, slot, value;
  const char* message;
};

const BadEntry kBadEntries[] = {
    {kPadded, 1, 1, 4, 3, 40, "sparse_indices[1][4][0][3]=40, want -1..39"},
    {kPadded, 1, 0, 0, 0, -2, "sparse_indices[0][0][0][0]=-2, want -1..39"},
    {kPadded, 8, 1, 2, 1, 5, "sparse_indices[1][2][0][1]=5, want -1..4"},
    {kPadded, 7, 1, 2, 1, 6, "sparse_indices[1][2][0][1]=6, want -1..5"},
    {kPacked, 1, 1, 4, 3, 0x7FFFFFFF, "sparse_indices[9][0][3]=2147483647, want -1..39"},
};

TEST(RefusedEntries, OfListsAreNamedAndNothingIsWritten) {
  for (const BadEntry& entry : kBadEntries) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      SparseCase c = Spoilt(entry.layout);
      c.tokens.block_size = entry.block_size;
      c.tokens.index_dtype = index_dtype;
      reference::SparseProblem values = MakeReferenceProblem(c);
      values.selection.indices[(entry.b * 5 + entry.t) * c.tokens.slots + entry.slot] = entry.value;
      const SparseCall call(c, values);
      ExpectRefused(call, entry.message);
      // The reference's forward, which SparseGradCall runs first, skips such an entry.
      const SparseGradCall grad(c, values);
      ExpectRefused(grad, entry.message);
    }
  }
}

// An entry that needs more than 32 bits must not be cut to a valid entry.
TEST(RefusedEntries, Of64BitsAreNotCut) {
  SparseCase c = Spoilt();
  c.tokens.index_dtype = DType::kI64;
  const SparseCall call(c);
  call.lists().tensor.Set(call.lists().Offset(0, 0, 1) + 2, static_cast<double>((int64_t{1} << 32) + 3));
  ExpectRefused(call, "sparse_indices[0][1][0][2]=4294967299, want -1..39");
}

// An entry between the limit and the end of the sequence names a key that the row may not see. Such an entry is
// skipped. Entries after the first -1 are not read.
TEST(RefusedEntries, AreNotThoseThatAreSkippedOrNotRead) {
  SparseCase c = Spoilt();
  reference::SparseProblem values = MakeReferenceProblem(c);
  values.selection.indices[1] = 39;
  values.selection.indices[c.tokens.slots + 3] = -1;
  values.selection.indices[c.tokens.slots + 4] = 1000;
  EXPECT_TRUE(ForwardIsTheReference(SparseCall(c, values)));
  EXPECT_TRUE(BackwardIsTheReference(SparseGradCall(c, values)));
}

TEST(RefusedEntries, OfTheBlockTable) {
  const SparseCall call(Spoilt(kPadded, 16));
  for (const int32_t page : {-1, 9}) {
    call.block_table().Set(call.block_table().stride()[0] + 1, page);
    ExpectRefused(call, ("block_table[1][1]=" + std::to_string(page) + ", want 0..8").c_str());
  }
}

TEST(SparsePlan, RunsOnThePlannedCallAlone) {
  const SparseCall call(Spoilt());
  const auto plan = PlanSparseFlashAttention(call.args(), call.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->Run(call.args()).ok());
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const auto message = [&](const SparseAttentionArgs& args) { return std::string(plan->Run(args).message()); };
  SparseAttentionArgs args = call.args();
  constexpr int64_t kLengths[] = {40, 39};
  args.lengths_kv = kLengths;
  EXPECT_THAT(message(args), HasSubstr("lengths_kv[1]=39, want 40 (as planned)"));
  args = call.args();
  args.sparse_indices.data = nullptr;
  EXPECT_THAT(message(args), HasSubstr("sparse_indices: null data"));
  args = call.args();
  args.k.shape[1] = 39;
  EXPECT_THAT(message(args), HasSubstr("k.shape"));
  args = call.args();
  args.softmax_max.data = nullptr;
  EXPECT_THAT(message(args), HasSubstr("softmax_max"));
  args = call.args();
  args.out.data = const_cast<void*>(args.q.data);
  EXPECT_THAT(message(args), HasSubstr("out: shares memory with q"));
  std::vector<std::byte> too_small(plan->workspace_bytes());
  EXPECT_FALSE(plan->Run(call.args(), std::span(too_small).first(too_small.size() / 2)).ok());
  EXPECT_EQ(before.FirstChange(), -1);
}

// A table of 2^59 pages of 16 rows is long enough for any length. Its 2^63 rows exceed int64_t.
TEST(SparsePlan, TakesATableOfMoreRowsThanCanBeCounted) {
  const SparseCall call(Spoilt(kPadded, 16));
  SparseAttentionArgs args = call.args();
  args.block_table.shape[1] = int64_t{1} << 59;
  const auto plan = PlanSparseFlashAttention(args, call.options());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
}

TEST(SparseGradPlan, RunsOnThePlannedCallAlone) {
  const SparseGradCall call(Spoilt());
  const auto plan = PlanSparseFlashAttentionGrad(call.args(), call.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->Run(call.args()).ok());
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  SparseAttentionGradArgs args = call.args();
  args.dk.data = nullptr;
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("dk: null data"));
  args = call.args();
  args.dv.data = const_cast<void*>(args.v.data);
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("dv: shares memory with v"));
  EXPECT_EQ(before.FirstChange(), -1);
}

}  // namespace
}  // namespace fa::test
