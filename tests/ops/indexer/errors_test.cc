// A refused call of the indexer or of a loss names the wrong argument and writes nothing. A plan refuses to run a
// different call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// Returns a valid case into which tests put mistakes: B=2, N=4, S1=5, S2=40, D=16, K=8, f16.
TokenCase Spoilt(Layout layout = Layout::kBSND, int64_t page_rows = 0) {
  TokenCase c;
  c.dtype = DType::kF16;
  c.layout = layout;
  c.page_rows = page_rows;
  c.lengths = {{5, 5}, {40, 40}};
  return c;
}

template <typename Args, typename Options>
struct Mistake {
  const char* name;
  const char* message;
  std::function<void(Args*, Options*)> make;
  Layout layout = Layout::kBSND;
  int64_t page_rows = 0;
};

constexpr Layout kPadded = Layout::kBSND, kPacked = Layout::kTND;
constexpr int64_t kTooMany[] = {5, 41}, kPerBatch[] = {5, 5};

void ExpectRefusal(const Status& status, const char* message) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

using Args = LightningIndexerArgs;
using Options = LightningIndexerOptions;

const Mistake<Args, Options> kMistakes[] = {
    {"NoQuery", "q: null data", [](Args* a, Options*) { a->q.data = nullptr; }},
    {"NoKey", "k: null data", [](Args* a, Options*) { a->k.data = nullptr; }},
    {"NoWeights", "weights: null data", [](Args* a, Options*) { a->weights.data = nullptr; }},
    {"NoIndices", "sparse_indices: null data", [](Args* a, Options*) { a->sparse_indices.data = nullptr; }},
    {"AnotherLayout", "layout=BSH, want BSND or TND", [](Args*, Options* o) { o->layout = Layout::kBSH; }},
    {"AnotherMask", "mask=1, want none (0) or right-down causal (3)",
     [](Args*, Options* o) { o->mask = static_cast<SparseMask>(1); }},
    {"QueryOfAnotherType", "q.dtype=i8, want f32, f16 or bf16", [](Args* a, Options*) { a->q.dtype = DType::kI8; }},
    {"KeyOfAnotherType", "k.dtype=bf16, want f16 (q.dtype)", [](Args* a, Options*) { a->k.dtype = DType::kBF16; }},
    {"WeightsOfAnotherType", "weights.dtype=bf16, want f16",
     [](Args* a, Options*) { a->weights.dtype = DType::kBF16; }},
    {"IndicesOfAnotherType", "sparse_indices.dtype=i64, want i32",
     [](Args* a, Options*) { a->sparse_indices.dtype = DType::kI64; }},
    {"ValuesOfAnotherType", "sparse_values.dtype=bf16, want f16",
     [](Args* a, Options*) { a->sparse_values.dtype = DType::kBF16; }},
    {"KeyOfTwoHeads", "k.shape[2]=2, want 1 (one key head)", [](Args* a, Options*) { a->k.shape[2] = 2; }},
    {"KeyOfAnotherHeadSize", "k.shape[3]=15, want 16 (q.shape[3])", [](Args* a, Options*) { a->k.shape[3] = 15; }},
    {"WeightsOfOtherHeads", "weights.shape[2]=3, want 4 (q.shape[2])",
     [](Args* a, Options*) { a->weights.shape[2] = 3; }},
    {"WeightsOfAnotherRank", "weights.shape=[2,5,1,4], want 3 dimensions (BSND)",
     [](Args* a, Options*) {
       a->weights.shape = {2, 5, 1, 4};
       a->weights.stride = {};
     }},
    {"IndicesOfOtherRows", "sparse_indices.shape[1]=4, want 5 (q.shape[1])",
     [](Args* a, Options*) { a->sparse_indices.shape[1] = 4; }},
    {"ValuesOfOtherEntries", "sparse_values.shape[3]=7, want 8 (sparse_indices.shape[3])",
     [](Args* a, Options*) { a->sparse_values.shape[3] = 7; }},
    {"IndicesOntoThemselves", "sparse_indices.stride=[40,0,8,1], want strides that keep its elements apart",
     [](Args* a, Options*) { a->sparse_indices.stride[1] = 0; }},
    {"IndicesAreWeights", "sparse_indices: shares memory with weights",
     [](Args* a, Options*) { a->sparse_indices.data = const_cast<void*>(a->weights.data); }},
    {"ValuesAreIndices", "sparse_values: shares memory with sparse_indices",
     [](Args* a, Options*) { a->sparse_values.data = a->sparse_indices.data; }},
    {"LengthBeyondTheTensor", "lengths_kv[1]=41, want 0..40 (k.shape[1])",
     [](Args* a, Options*) { a->lengths_kv = kTooMany; }},
    {"PackedLengthsOfABatch", "lengths_q[1]=5, want 10 (q.shape[0]): looks like per-batch lengths",
     [](Args* a, Options*) { a->lengths_q = kPerBatch; }, kPacked},
    {"PagesWithoutLengths", "lengths_kv: missing, want the lengths of paged keys",
     [](Args* a, Options*) { a->lengths_kv = {}; }, kPadded, 16},
    {"LengthBeyondTheTable", "lengths_kv[1]=81, want 0..80 (block_table.shape[1] pages)",
     [](Args* a, Options*) {
       static constexpr int64_t kLengths[] = {40, 81};
       a->lengths_kv = kLengths;
     },
     kPadded, 16},
    {"TableOfAnotherType", "block_table.dtype=i64, want i32",
     [](Args* a, Options*) { a->block_table.dtype = DType::kI64; }, kPadded, 16},
};

class RefusedIndexer : public ::testing::TestWithParam<Mistake<Args, Options>> {};

TEST_P(RefusedIndexer, NamesTheArgumentAndWritesNothing) {
  const IndexerCall call(IndexerCase{.tokens = Spoilt(GetParam().layout, GetParam().page_rows)});
  Args args = call.args();
  Options options = call.options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  ExpectRefusal(LightningIndexer(args, options), GetParam().message);
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedIndexer, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

using GradArgs = LightningIndexerGradArgs;
using GradOptions = LightningIndexerGradOptions;

const Mistake<GradArgs, GradOptions> kGradMistakes[] = {
    {"NoLists", "sparse_indices: null data", [](GradArgs* a, GradOptions*) { a->sparse_indices.data = nullptr; }},
    {"NoGradientOfValues", "d_values: null data", [](GradArgs* a, GradOptions*) { a->d_values.data = nullptr; }},
    {"NoDq", "dq: null data", [](GradArgs* a, GradOptions*) { a->dq.data = nullptr; }},
    {"NoDk", "dk: null data", [](GradArgs* a, GradOptions*) { a->dk.data = nullptr; }},
    {"NoDweights", "dweights: null data", [](GradArgs* a, GradOptions*) { a->dweights.data = nullptr; }},
    {"ListsOfAnotherType", "sparse_indices.dtype=f32, want i32 or i64",
     [](GradArgs* a, GradOptions*) { a->sparse_indices.dtype = DType::kF32; }},
    {"GradientOfValuesOfAnotherType", "d_values.dtype=bf16, want f16",
     [](GradArgs* a, GradOptions*) { a->d_values.dtype = DType::kBF16; }},
    {"GradientOfValuesOfOtherEntries", "d_values.shape[3]=7, want 8 (sparse_indices.shape[3])",
     [](GradArgs* a, GradOptions*) { a->d_values.shape[3] = 7; }},
    {"DqOfAnotherType", "dq.dtype=f32, want f16", [](GradArgs* a, GradOptions*) { a->dq.dtype = DType::kF32; }},
    {"DkOfAnotherLength", "dk.shape[1]=39, want 40 (k.shape[1])",
     [](GradArgs* a, GradOptions*) { a->dk.shape[1] = 39; }},
    {"DweightsOfAnotherType", "dweights.dtype=f32, want f16",
     [](GradArgs* a, GradOptions*) { a->dweights.dtype = DType::kF32; }},
    {"DweightsOfOtherHeads", "dweights.shape[2]=3, want 4",
     [](GradArgs* a, GradOptions*) { a->dweights.shape[2] = 3; }},
    {"DkOntoItself", "dk.stride=[640,0,16,1], want strides that keep its elements apart",
     [](GradArgs* a, GradOptions*) { a->dk.stride[1] = 0; }},
    {"DqIsQuery", "dq: shares memory with q",
     [](GradArgs* a, GradOptions*) { a->dq.data = const_cast<void*>(a->q.data); }},
    {"DweightsIsDq", "dweights: shares memory with dq",
     [](GradArgs* a, GradOptions*) { a->dweights.data = a->dq.data; }},
};

class RefusedIndexerGrad : public ::testing::TestWithParam<Mistake<GradArgs, GradOptions>> {};

TEST_P(RefusedIndexerGrad, NamesTheArgumentAndWritesNothing) {
  const IndexerGradCall call(IndexerCase{.tokens = Spoilt()});
  GradArgs args = call.args();
  GradOptions options = call.options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  ExpectRefusal(LightningIndexerGrad(args, options), GetParam().message);
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedIndexerGrad, ::testing::ValuesIn(kGradMistakes),
                         [](const auto& info) { return info.param.name; });

using LossArgs = SparseIndexerLossArgs;
using LossOptions = SparseIndexerLossOptions;

const Mistake<LossArgs, LossOptions> kLossMistakes[] = {
    {"NoQuery", "q: null data", [](LossArgs* a, LossOptions*) { a->q.data = nullptr; }},
    {"NoKey", "k: null data", [](LossArgs* a, LossOptions*) { a->k.data = nullptr; }},
    {"NoQueryIndex", "q_index: null data", [](LossArgs* a, LossOptions*) { a->q_index.data = nullptr; }},
    {"NoKeyIndex", "k_index: null data", [](LossArgs* a, LossOptions*) { a->k_index.data = nullptr; }},
    {"NoWeights", "weights: null data", [](LossArgs* a, LossOptions*) { a->weights.data = nullptr; }},
    {"NoLists", "sparse_indices: null data", [](LossArgs* a, LossOptions*) { a->sparse_indices.data = nullptr; }},
    {"NoMax", "softmax_max: null data", [](LossArgs* a, LossOptions*) { a->softmax_max.data = nullptr; }},
    {"NoSum", "softmax_sum: null data", [](LossArgs* a, LossOptions*) { a->softmax_sum.data = nullptr; }},
    {"NoDq", "dq_index: null data", [](LossArgs* a, LossOptions*) { a->dq_index.data = nullptr; }},
    {"NoDk", "dk_index: null data", [](LossArgs* a, LossOptions*) { a->dk_index.data = nullptr; }},
    {"NoDweights", "dweights: null data", [](LossArgs* a, LossOptions*) { a->dweights.data = nullptr; }},
    {"NoLoss", "loss: null data", [](LossArgs* a, LossOptions*) { a->loss.data = nullptr; }},
    {"NoKeyRope", "k_rope: missing, want it with q_rope", [](LossArgs* a, LossOptions*) { a->k_rope.data = nullptr; }},
    {"LossOfAnotherType", "loss.dtype=f16, want f32", [](LossArgs* a, LossOptions*) { a->loss.dtype = DType::kF16; }},
    {"LossOfTwo", "loss.shape=[2], want one element",
     [](LossArgs* a, LossOptions*) {
       a->loss.shape = {2};
       a->loss.stride = {};
     }},
    {"AnotherReduction", "reduction=2, want sum (0) or mean (1)",
     [](LossArgs*, LossOptions* o) { o->reduction = static_cast<LossReduction>(2); }},
    {"AnotherTarget", "target=3, want head mean (0), L1 (1) or given (2)",
     [](LossArgs*, LossOptions* o) { o->target = static_cast<IndexerTarget>(3); }},
    {"ScaleInfinite", "scale=inf, want a finite number", [](LossArgs*, LossOptions* o) { o->scale = INFINITY; }},
    {"AnotherLayout", "layout=SBH, want BSND or TND", [](LossArgs*, LossOptions* o) { o->layout = Layout::kSBH; }},
    {"QueryOfAnotherType", "q.dtype=f32, want f16 (q_index.dtype)",
     [](LossArgs* a, LossOptions*) { a->q.dtype = DType::kF32; }},
    {"KeyOfTwoHeads", "k.shape[2]=2, want 1 (one key head)", [](LossArgs* a, LossOptions*) { a->k.shape[2] = 2; }},
    {"KeyIndexOfAnotherSize", "k_index.shape[3]=15, want 16 (q_index.shape[3])",
     [](LossArgs* a, LossOptions*) { a->k_index.shape[3] = 15; }},
    {"MaxOfOtherHeads", "softmax_max.shape[3]=3, want 4",
     [](LossArgs* a, LossOptions*) { a->softmax_max.shape[3] = 3; }},
    {"LengthBeyondTheTensor", "lengths_kv[1]=41, want 0..40 (k_index.shape[1])",
     [](LossArgs* a, LossOptions*) { a->lengths_kv = kTooMany; }},
    {"SinkOfOtherHeads", "sink.shape[0]=3, want 4 (q.shape[2])",
     [](LossArgs* a, LossOptions*) { a->sink.shape = {3}; }},
    {"SinkOfAnotherType", "sink.dtype=f16, want f32", [](LossArgs* a, LossOptions*) { a->sink.dtype = DType::kF16; }},
    {"SinkWithTheHeadMean", "sink: given together with p_head_mean",
     [](LossArgs* a, LossOptions*) { a->p_head_mean = a->softmax_max; }},
    {"LossIsSink", "loss: shares memory with sink",
     [](LossArgs* a, LossOptions*) { a->loss.data = const_cast<void*>(a->sink.data); }},
    {"LossIsWeights", "loss: shares memory with weights",
     [](LossArgs* a, LossOptions*) { a->loss.data = const_cast<void*>(a->weights.data); }},
    {"DkIsKeyIndex", "dk_index: shares memory with k_index",
     [](LossArgs* a, LossOptions*) { a->dk_index.data = const_cast<void*>(a->k_index.data); }},
};

class RefusedLoss : public ::testing::TestWithParam<Mistake<LossArgs, LossOptions>> {};

TEST_P(RefusedLoss, NamesTheArgumentAndWritesNothing) {
  const LossCall call(LossCase{.tokens = Spoilt(), .d_rope = 8, .sink = true});
  LossArgs args = call.sparse_args();
  LossOptions options = call.options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  ExpectRefusal(SparseLightningIndexerGradKLLoss(args, options), GetParam().message);
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedLoss, ::testing::ValuesIn(kLossMistakes),
                         [](const auto& info) { return info.param.name; });

using DenseArgs = DenseIndexerLossArgs;
using DenseOptions = DenseIndexerLossOptions;

const Mistake<DenseArgs, DenseOptions> kDenseMistakes[] = {
    {"NoKey", "k: null data", [](DenseArgs* a, DenseOptions*) { a->k.data = nullptr; }},
    {"NoMaxIndex", "softmax_max_index: null data",
     [](DenseArgs* a, DenseOptions*) { a->softmax_max_index.data = nullptr; }},
    {"NoSumIndex", "softmax_sum_index: null data",
     [](DenseArgs* a, DenseOptions*) { a->softmax_sum_index.data = nullptr; }},
    {"KeyHeadsThatDoNotDivide", "k.shape[2]=3, want a divisor of 4 (q.shape[2])",
     [](DenseArgs* a, DenseOptions*) {
       a->k.shape[2] = 3;
       a->k.stride = {};
     }},
    {"MaxOfOtherHeads", "softmax_max.shape[1]=1, want 2",
     [](DenseArgs* a, DenseOptions*) { a->softmax_max.shape[1] = 1; }},
    {"MaxIndexOfAnotherShape", "softmax_max_index.shape",
     [](DenseArgs* a, DenseOptions*) {
       a->softmax_max_index.shape = {2, 5};
       a->softmax_max_index.stride = {};
     }},
    {"SumIndexOfAnotherType", "softmax_sum_index.dtype=f16, want f32",
     [](DenseArgs* a, DenseOptions*) { a->softmax_sum_index.dtype = DType::kF16; }},
    {"DqIsSumIndex", "dq_index: shares memory with softmax_sum_index",
     [](DenseArgs* a, DenseOptions*) { a->dq_index.data = const_cast<void*>(a->softmax_sum_index.data); }},
};

class RefusedDenseLoss : public ::testing::TestWithParam<Mistake<DenseArgs, DenseOptions>> {};

TEST_P(RefusedDenseLoss, NamesTheArgumentAndWritesNothing) {
  const LossCall call(LossCase{.tokens = Spoilt(), .dense = true, .heads_kv = 2});
  DenseArgs args = call.dense_args();
  DenseOptions options = call.dense_options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  ExpectRefusal(DenseLightningIndexerGradKLLoss(args, options), GetParam().message);
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedDenseLoss, ::testing::ValuesIn(kDenseMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(RefusedIndexerEntries, AreNamedAndNothingIsWritten) {
  struct Entry {
    Layout layout;
    int64_t value;
    const char* message;
  };
  for (const Entry& entry : {Entry{kPadded, 40, "sparse_indices[1][4][0][3]=40, want -1..39"},
                             {kPadded, -2, "sparse_indices[1][4][0][3]=-2, want -1..39"},
                             {kPacked, 40, "sparse_indices[9][0][3]=40, want -1..39"}}) {
    const IndexerGradCall grad(IndexerCase{.tokens = Spoilt(entry.layout)});
    const LossCall loss(LossCase{.tokens = Spoilt(entry.layout)});
    const int64_t b = entry.layout == kPadded ? 1 : 0, row = entry.layout == kPadded ? 4 : 9;
    for (const RowTensor* lists : {&grad.lists(), &loss.lists()}) {
      lists->tensor.Set(lists->Offset(b, 0, row) + 3, static_cast<double>(entry.value));
    }
    const Snapshot before_grad = grad.TakeSnapshot(false), before_loss = loss.TakeSnapshot(false);
    ExpectRefusal(grad.Run(nullptr), entry.message);
    ExpectRefusal(loss.Run(nullptr), entry.message);
    EXPECT_EQ(before_grad.FirstChange(), -1);
    EXPECT_EQ(before_loss.FirstChange(), -1);
  }
}

// A table of 2^59 pages of 16 rows is long enough for any length. Its 2^63 rows exceed int64_t.
TEST(IndexerPlan, TakesATableOfMoreRowsThanCanBeCounted) {
  const IndexerCall call(IndexerCase{.tokens = Spoilt(kPadded, 16)});
  Args args = call.args();
  args.block_table.shape[1] = int64_t{1} << 59;
  const auto plan = PlanLightningIndexer(args, call.options());
  EXPECT_TRUE(plan.ok()) << plan.status().message();
}

TEST(RefusedIndexerEntries, OfTheBlockTable) {
  const IndexerCall call(IndexerCase{.tokens = Spoilt(kPadded, 16)});
  for (const int32_t page : {-1, 9}) {
    call.block_table().Set(call.block_table().stride()[0] + 1, page);
    const Snapshot before = call.TakeSnapshot(false);
    ExpectRefusal(call.Run(nullptr), ("block_table[1][1]=" + std::to_string(page) + ", want 0..8").c_str());
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

}  // namespace
}  // namespace fa::test
