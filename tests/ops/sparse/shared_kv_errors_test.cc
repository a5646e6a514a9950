// A refused call of attention over original and compressed keys names the wrong argument and writes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "ops/sparse/shared_kv_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Returns a valid case into which tests put mistakes: B=2, N=3, S1=5, S2=40, 10 compressed keys, D=16, K=6, f16.
SharedKvCase ValidCase(Layout layout = Layout::kBSND, int64_t page_rows = 0) {
  SharedKvCase c{.heads = 3, .d = 16, .sink = true};
  c.tokens.dtype = DType::kF16;
  c.tokens.layout = layout;
  c.tokens.page_rows = c.cmp_page_rows = page_rows;
  c.tokens.lengths = {{5, 5}, {40, 40}};
  c.cmp_lengths = {10, 10};
  c.topk_lengths = true;
  return c;
}

using SharedCallArgs = SharedKvArgs;
using SharedCallOptions = SharedKvOptions;

struct SharedKvMistake {
  const char* name;
  const char* message;
  std::function<void(SharedCallArgs*, SharedCallOptions*)> make;
  Layout layout = Layout::kBSND;
  int64_t page_rows = 0;
};

constexpr int64_t kSixRows[] = {6, 6}, kOneEntry[] = {5}, kMinusOne[] = {-1, 0}, kFiveRows[] = {5, 5};

const SharedKvMistake kSharedKvMistakes[] = {
    {"NoQuery", "q: missing", [](SharedCallArgs* a, SharedCallOptions*) { a->q = {}; }},
    {"NoKeys", "ori_kv: missing, want it or cmp_kv",
     [](SharedCallArgs* a, SharedCallOptions*) { a->ori_kv = a->cmp_kv = {}; }},
    {"NoOut", "out: null data", [](SharedCallArgs* a, SharedCallOptions*) { a->out.data = nullptr; }},
    {"Ratio", "cmp_ratio=0, want 1..", [](SharedCallArgs*, SharedCallOptions* o) { o->cmp_ratio = 0; }},
    {"Left", "window_left=-2, want -1 or more", [](SharedCallArgs*, SharedCallOptions* o) { o->window_left = -2; }},
    {"Right", "window_right=-7, want -1 or more", [](SharedCallArgs*, SharedCallOptions* o) { o->window_right = -7; }},
    {"OriMask", "ori_mask=2, want none (0), right-down causal (3) or band (4)",
     [](SharedCallArgs*, SharedCallOptions* o) { o->ori_mask = static_cast<SparseMask>(2); }},
    {"CmpMask", "cmp_mask=4, want none (0) or right-down causal (3)",
     [](SharedCallArgs*, SharedCallOptions* o) { o->cmp_mask = SparseMask::kBand; }},
    {"WindowAndList", "ori_mask=4, want none (0) with ori_indices",
     [](SharedCallArgs* a, SharedCallOptions*) { a->ori_indices = a->cmp_indices; }},
    {"Lse", "lse_without_keys=0, want -inf or inf",
     [](SharedCallArgs*, SharedCallOptions* o) { o->lse_without_keys = 0; }},
    {"Scale", "scale=nan, want a finite number", [](SharedCallArgs*, SharedCallOptions* o) { o->scale = NAN; }},
    {"Slots", "ori_indices_are_slots: given, want none without ori_indices",
     [](SharedCallArgs*, SharedCallOptions* o) { o->ori_indices_are_slots = true; }},
    {"SlotsWithoutPages", "ori_indices_are_slots: given, want none without ori_block_table",
     [](SharedCallArgs* a, SharedCallOptions* o) {
       a->ori_indices = a->cmp_indices;
       o->ori_mask = SparseMask::kNone;
       o->ori_indices_are_slots = true;
     }},
    {"TypeOfKeys", "ori_kv.dtype=bf16, want f16 (q.dtype)",
     [](SharedCallArgs* a, SharedCallOptions*) { a->ori_kv.dtype = DType::kBF16; }},
    {"ColumnsOfKeys", "cmp_kv.shape[3]=8, want 16 (q.shape[3])",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_kv.shape[3] = 8; }},
    {"HeadsOfKeys", "ori_kv.shape[2]=2, want 1 (one key head)",
     [](SharedCallArgs* a, SharedCallOptions*) { a->ori_kv.shape[2] = 2; }},
    {"ListsWithoutKeys", "cmp_indices: given, want none without cmp_kv",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_kv = {}; }},
    {"LengthsWithoutKeys", "used_ori: given, want none without ori_kv",
     [](SharedCallArgs* a, SharedCallOptions*) { a->ori_kv = {}; }},
    {"TypeOfLists", "cmp_indices.dtype=f32, want i32 or i64",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_indices.dtype = DType::kF32; }},
    {"TypeOfTopkLength", "cmp_topk_length.dtype=i64, want i32",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_topk_length.dtype = DType::kI64; }},
    {"TopkLengthWithoutList", "cmp_topk_length: given, want none without cmp_indices",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_indices = {}; }},
    {"TypeOfSink", "sink.dtype=f16, want f32",
     [](SharedCallArgs* a, SharedCallOptions*) { a->sink.dtype = DType::kF16; }},
    {"HeadsOfSink", "sink.shape[0]=2, want 3", [](SharedCallArgs* a, SharedCallOptions*) { a->sink.shape[0] = 2; }},
    {"TypeOfLse", "lse.dtype=f16, want f32", [](SharedCallArgs* a, SharedCallOptions*) { a->lse.dtype = DType::kF16; }},
    {"TypeOfOut", "out.dtype=f32, want f16 (q.dtype)",
     [](SharedCallArgs* a, SharedCallOptions*) { a->out.dtype = DType::kF32; }},
    {"LongQueries", "used_q[0]=6, want 0..5 (q.shape[1])",
     [](SharedCallArgs* a, SharedCallOptions*) { a->used_q = kSixRows; }},
    {"OneLength", "used_cmp has 1 entries, want 2 (batch)",
     [](SharedCallArgs* a, SharedCallOptions*) { a->used_cmp = kOneEntry; }},
    {"SumsInBsnd", "cu_q: given, want none in layout BSND",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cu_q = kFiveRows; }},
    {"SumsOfPages", "cu_ori: given, want none for keys in pages",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cu_ori = kFiveRows; }, Layout::kTND, 16},
    {"NoSums", "cu_cmp: missing", [](SharedCallArgs* a, SharedCallOptions*) { a->cu_cmp = {}; }, Layout::kTND},
    {"UsedTooLong", "used_q[0]=6, want 0..5", [](SharedCallArgs* a, SharedCallOptions*) { a->used_q = kSixRows; },
     Layout::kTND},
    {"UsedNegative", "used_cmp[0]=-1, want 0..10",
     [](SharedCallArgs* a, SharedCallOptions*) { a->used_cmp = kMinusOne; }, Layout::kTND},
    {"ResidualNegative", "cmp_residual[0]=-1, want 0..",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_residual = kMinusOne; }},
    {"NoLengths", "used_ori: missing, want the lengths of paged keys",
     [](SharedCallArgs* a, SharedCallOptions*) { a->used_ori = {}; }, Layout::kBSND, 16},
    {"TypeOfTable", "cmp_block_table.dtype=i64, want i32",
     [](SharedCallArgs* a, SharedCallOptions*) { a->cmp_block_table.dtype = DType::kI64; }, Layout::kBSND, 16},
    {"OutOverQueries", "out: shares memory with q",
     [](SharedCallArgs* a, SharedCallOptions*) { a->out.data = const_cast<void*>(a->q.data); }},
};

class RefusedSharedKv : public ::testing::TestWithParam<SharedKvMistake> {};

TEST_P(RefusedSharedKv, NamesTheArgumentAndWritesNothing) {
  const SharedKvMistake& mistake = GetParam();
  const SharedKvCall call(ValidCase(mistake.layout, mistake.page_rows));
  SharedKvArgs args = call.args();
  SharedKvOptions options = call.options();
  mistake.make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = SharedKvAttention(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(mistake.message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSharedKv, ::testing::ValuesIn(kSharedKvMistakes),
                         [](const auto& info) { return info.param.name; });

using SharedGrad = SharedKvGradArgs;

struct SharedKvGradMistake {
  const char* name;
  const char* message;
  std::function<void(SharedGrad*)> make;
};

const SharedKvGradMistake kSharedKvGradMistakes[] = {
    {"NoLse", "lse: null data", [](SharedGrad* a) { a->lse.data = nullptr; }},
    {"NoOut", "out: missing, want it with dq", [](SharedGrad* a) { a->out = {}; }},
    {"NoGradientOfOut", "d_out: missing, want it with dq", [](SharedGrad* a) { a->d_out = {}; }},
    {"NullOut", "out: missing, want it with dq", [](SharedGrad* a) { a->out.data = nullptr; }},
    {"NullGradientOfOut", "d_out: missing, want it with dq", [](SharedGrad* a) { a->d_out.data = nullptr; }},
    {"KeysWithoutQueries", "d_ori_kv: given, want none without dq", [](SharedGrad* a) { a->dq = {}; }},
    {"Nothing", "dq: missing, want it, ori_l1_norm or cmp_l1_norm",
     [](SharedGrad* a) { a->dq = a->d_ori_kv = a->d_cmp_kv = a->dsink = a->cmp_l1_norm = {}; }},
    {"NormWithoutList", "ori_l1_norm.shape[3]=6, want at least ",
     [](SharedGrad* a) { a->ori_l1_norm = a->cmp_l1_norm; }},
    {"SlotsOfNorm", "cmp_l1_norm.shape[3]=5, want 6 (cmp_indices.shape[3])",
     [](SharedGrad* a) { a->cmp_l1_norm.shape[3] = 5; }},
    {"GradientWithoutKeys", "d_ori_kv: given, want none without ori_kv",
     [](SharedGrad* a) {
       a->ori_kv = {};
       a->used_ori = {};
     }},
    {"RowsOfGradient", "d_cmp_kv.shape[1]=9, want 10 (cmp_kv.shape[1])",
     [](SharedGrad* a) { a->d_cmp_kv.shape[1] = 9; }},
    {"SinkWithoutSink", "dsink: given, want none without sink", [](SharedGrad* a) { a->sink = {}; }},
    {"TypeOfNorm", "cmp_l1_norm.dtype=f16, want f32", [](SharedGrad* a) { a->cmp_l1_norm.dtype = DType::kF16; }},
    {"DqOverQueries", "dq: shares memory with q", [](SharedGrad* a) { a->dq.data = const_cast<void*>(a->q.data); }},
};

class RefusedSharedKvGrad : public ::testing::TestWithParam<SharedKvGradMistake> {};

TEST_P(RefusedSharedKvGrad, NamesTheArgumentAndWritesNothing) {
  const SharedKvGradCall call(ValidCase());
  SharedKvGradArgs args = call.args();
  GetParam().make(&args);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = SharedKvAttentionGrad(args, call.options());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(GetParam().message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedSharedKvGrad, ::testing::ValuesIn(kSharedKvGradMistakes),
                         [](const auto& info) { return info.param.name; });

/// Replaces an entry of an i32 tensor in a call's arguments.
void SetEntry(const TensorView& tensor, int64_t index, int32_t value) {
  static_cast<int32_t*>(const_cast<void*>(tensor.data))[index] = value;
}

TEST(SharedKvContents, AreCheckedBeforeAnythingIsWritten) {
  struct Bad {
    TensorView SharedCallArgs::*tensor;
    int32_t value;
    const char* message;
    int64_t index = 0;
  };
  for (const Bad& bad : {Bad{&SharedCallArgs::cmp_indices, 10, "cmp_indices[0][0][0][0]=10, want -1..9"},
                         Bad{&SharedCallArgs::cmp_indices, -2, "cmp_indices[0][0][0][0]=-2, want -1..9"},
                         Bad{&SharedCallArgs::cmp_topk_length, 7, "cmp_topk_length[0][0][0]=7, want 0..6"},
                         Bad{&SharedCallArgs::cmp_topk_length, -1, "cmp_topk_length[0][0][0]=-1, want 0..6"},
                         Bad{&SharedCallArgs::cmp_block_table, 99, "cmp_block_table[0][0]=99, want 0.."},
                         Bad{&SharedCallArgs::ori_block_table, -1, "ori_block_table[0][1]=-1, want 0..", 1}}) {
    SharedKvCase c = ValidCase(Layout::kBSND, 16);
    c.topk_lengths = bad.tensor == &SharedCallArgs::cmp_topk_length;
    const SharedKvCall call(c);
    SetEntry(call.args().*(bad.tensor), bad.index, bad.value);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    const Status status = call.Run(nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(bad.message));
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(SharedKvPlan, RefusesOtherLengths) {
  const SharedKvCall call(ValidCase());
  const auto plan = PlanSharedKvAttention(call.args(), call.options());
  ASSERT_TRUE(plan.ok());
  SharedKvArgs args = call.args();
  constexpr int64_t kOther[] = {9, 10};
  args.used_cmp = kOther;
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_THAT(std::string(plan->Run(args).message()), ::testing::HasSubstr("used_cmp[0]=9"));
  EXPECT_EQ(before.FirstChange(), -1);
}

}  // namespace
}  // namespace fa::test
