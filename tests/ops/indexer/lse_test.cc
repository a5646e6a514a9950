// Compares the softmax statistics of an indexer's scores with the reference in double, on every level. Further tests
// check errors, plans, memory and bits, as for every operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/indexer/loss_case.h"
#include "ops/indexer/lse_case.h"
#include "ops/indexer/random_indexer_case.h"
#include "support/allocation_counter.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

void CheckStatistics(const IndexerCase& c) { EXPECT_TRUE(StatisticsAreTheReference(c)); }

IndexerCase UsualIndexer(DType dtype = DType::kF32) {
  IndexerCase c;
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
  return c;
}

/// Returns a case of two sequences. One has few tokens and many keys, which workers divide among them. The other has
/// many tokens.
IndexerCase OfManyTasks(DType dtype, Layout layout = Layout::kBSND) {
  IndexerCase c{.heads = 6, .d = 40};
  c.tokens.dtype = dtype;
  c.tokens.layout = layout;
  c.tokens.lengths = {{9, 0, 40, 1}, {1300, 3, 170, 2640}};
  return c;
}

TEST(IndexerLse, EveryTypeLayoutAndMask) {
  const auto check = [&](DType dtype, Layout layout, bool causal) {
    IndexerCase c = UsualIndexer(dtype);
    c.f32_weights = !causal;
    c.tokens.layout = layout;
    c.tokens.causal = causal;
    c.tokens.spare_q = c.tokens.spare_k = 2;
    CheckStatistics(c);
    c.values = IndexerValues::kSmallIntegers;
    CheckStatistics(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"causal", {false, true}});
}

TEST(IndexerLse, EverySizeOfHeadsAndRows) {
  const auto check = [&](int64_t d, int64_t heads, int64_t keys) {
    IndexerCase c{.heads = heads, .d = d};
    // A tile unit has a loop of its own for bf16 in whole tiles of heads.
    c.tokens.dtype = heads % 32 == 0 ? DType::kBF16 : kTokenDTypes[(d + heads + keys) % 3];
    c.tokens.lengths = {{4, 1}, {keys + 2, keys}};
    CheckStatistics(c);
  };
  ForEachCase(check, Axis{"d", {1, 33, 128}}, Axis{"heads", {1, 3, 16, 40, 64}}, Axis{"keys", {1, 31, 65, 300}});
}

TEST(IndexerLse, KeysThatAreCutAmongWorkers) {
  for (const DType dtype : kTokenDTypes) CheckStatistics(OfManyTasks(dtype));
}

TEST(IndexerLse, SequencesWithoutQueriesOrKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const reference::Lengths& lengths :
         {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{9, 0, 4}, {4, 3, 6}}}) {
      IndexerCase c;
      c.tokens.layout = layout;
      c.tokens.lengths = lengths;
      CheckStatistics(c);
      c.tokens.spare_q = c.tokens.spare_k = 2;
      CheckStatistics(c);
    }
  }
}

TEST(IndexerLse, StridesAndPlacesOfTensors) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    IndexerCase c = UsualIndexer(DType::kBF16);
    c.tokens.layout = layout;
    c.tokens.padding = {.inner = 3, .middle = 5, .outer = 7};
    CheckStatistics(c);
    c.tokens.padding = {};
    for (const Place place : {Place::kAtEnd, Place::kAtStart}) {
      c.tokens.placement = {.place = place};
      CheckStatistics(c);
    }
    c.tokens.placement = {.misalignment = 1};
    CheckStatistics(c);
  }
}

TEST(IndexerLse, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    ASSERT_TRUE(StatisticsAreTheReference(RandomIndexerCase(static_cast<uint64_t>(seed), false), 1 + seed % 3));
  }
}

TEST(IndexerLse, WritesWhereTheStridesSay) {
  const LseCall call(UsualIndexer());
  ASSERT_TRUE(call.Run(nullptr).ok());
  const DenseIndexerLseArgs dense = call.args();
  std::vector<float> max(400, -1), sum(400, -1);
  DenseIndexerLseArgs args = dense;
  args.softmax_max_index = {max.data(), DType::kF32, dense.softmax_max_index.shape, {70, 0, 1}};
  args.softmax_sum_index = {sum.data(), DType::kF32, dense.softmax_sum_index.shape, {9, 3, 1}};
  ASSERT_TRUE(DenseLightningIndexerSoftmaxLse(args, call.options()).ok());
  int written = 0;
  for (int64_t b = 0; b < 5; ++b) {
    for (int64_t t = 0; t < 7; ++t) {
      const auto value = [&](const MutableTensorView& of) { return static_cast<const float*>(of.data)[b * 7 + t]; };
      EXPECT_EQ(max[b * 70 + t], value(dense.softmax_max_index));
      EXPECT_EQ(sum[b * 9 + t], value(dense.softmax_sum_index));
    }
  }
  for (const float value : max) written += value != -1 ? 1 : 0;
  EXPECT_LE(written, 35) << "nothing between the elements";
}

TEST(IndexerLse, ANanReachesTheRowsThatSeeItAndNoOther) {
  const auto check = [&](DType dtype, int64_t heads, int64_t d) {
    IndexerCase c{.heads = heads, .d = d};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{6, 3}, {50, 20}};
    const reference::IndexerProblem finite = MakeReferenceProblem(c);
    reference::IndexerProblem values = finite;
    values.k[(finite.selection.Limit(0, 2) - 1) * c.d + 5] = kNan;
    const LseCall usual(c, finite), call(c, values);
    const reference::IndexerStatistics want = reference::StatisticsOfScores(values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(usual.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      EXPECT_TRUE(SpreadsAsExpected(
          call.Outputs(), {{"softmax_max_index", want.max, {}}, {"softmax_sum_index", want.sum, {}}}, usual.Outputs()))
          << IsaName(isa);
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"heads", {18, 32}}, Axis{"d", {40, 64}});
}

TEST(IndexerLse, InfiniteScores) {
  IndexerCase c{.heads = 1, .d = 8, .values = IndexerValues::kSmallIntegers};
  c.tokens.lengths = {{4}, {9}};
  c.tokens.causal = false;
  for (const double key : {kInf, -kInf}) {
    reference::IndexerProblem values = MakeReferenceProblem(c);
    for (size_t x = 0; x < values.q.size(); ++x) values.q[x] = 1 + static_cast<double>(x % 3);
    for (int64_t x = 0; x < c.d; ++x) values.k[3 * c.d + x] = key;
    values.weights = {1, -1, 2, -2};
    CheckStatistics(c);
    EXPECT_TRUE(StatisticsAreTheReference(LseCall(c, values))) << key;
  }
}

TEST(IndexerLse, AMaximumOfZeroIsPositive) {
  IndexerCase c{.heads = 1, .d = 8, .values = IndexerValues::kSmallIntegers};
  c.tokens.lengths = {{4}, {9}};
  reference::IndexerProblem values = MakeReferenceProblem(c);
  for (double& q : values.q) q = 1;
  for (double& k : values.k) k = -1;
  values.weights = {-1, -1, 1, 1};  // products are negative, so scores are -0 for weights of -1 and 0 for weights of 1
  const LseCall call(c, values);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    for (const double max : ValuesOf(call.Outputs(), "softmax_max_index")) {
      EXPECT_EQ(max, 0);
      EXPECT_FALSE(std::signbit(max)) << IsaName(isa);
    }
  }
}

TEST(IndexerLse, BitsDoNotDependOnThreadsLayoutAndOtherSequences) {
  const auto check = [](Isa isa, DType dtype) {
    const IndexerCase c = OfManyTasks(dtype);
    const TokenOutputs want = StatisticsOf(c, ContextOf(isa, 1));
    for (const int threads : {2, 3, 4}) {
      EXPECT_TRUE(SameBits(StatisticsOf(c, ContextOf(isa, threads)), want)) << threads;
    }
    const TokenOutputs packed = StatisticsOf(OfManyTasks(dtype, Layout::kTND), ContextOf(isa, 2));
    for (const TokenOutput& output : want) EXPECT_EQ(ValuesOf(packed, output.name), output.rows.values);
    size_t next = 0;
    for (int64_t b = 0; b < c.tokens.batch(); ++b) {
      IndexerCase alone = c;
      alone.tokens.lengths = {{c.tokens.lengths.sq[b]}, {c.tokens.lengths.sk[b]}};
      alone.tokens.first_sequence = b;
      for (const double sum : ValuesOf(StatisticsOf(alone, ContextOf(isa, 3)), "softmax_sum_index")) {
        ASSERT_EQ(sum, ValuesOf(want, "softmax_sum_index")[next++]) << "sequence " << b;
      }
    }
  };
  ForEachCase(check, Axis{"isa", IsaLevels()}, Axis{"type", kTokenDTypes});
}

// With several workers, the keys of one token are divided among them. With one worker they are not.
TEST(IndexerLse, BitsDoNotDependOnTheCutOfKeys) {
  for (const DType dtype : kTokenDTypes) {
    IndexerCase c{.heads = 3, .d = 24};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{1}, {5000}};
    const LseCall call(c);
    std::vector<int64_t> tasks;
    std::vector<TokenOutputs> outputs;
    for (const int threads : {1, 2, 4}) {
      Context* context = ContextOf(DetectIsa(), threads);
      const auto plan = PlanDenseLightningIndexerSoftmaxLse(call.args(), call.options(), context);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      tasks.push_back(plan->info().tasks);
      ASSERT_TRUE(plan->Run(call.args()).ok());
      outputs.push_back(call.Outputs());
    }
    EXPECT_EQ(tasks.front(), 1);
    EXPECT_GT(tasks.back(), 2);
    for (const TokenOutputs& got : outputs) EXPECT_TRUE(SameBits(got, outputs.front())) << Name(dtype);
  }
}

TEST(IndexerLse, AllocatesNothingFromTheSecondCallOn) {
  for (const Isa isa : IsaLevels()) {
    for (const int threads : {1, 2}) {
      const LseCall call(OfManyTasks(DType::kBF16));
      const auto plan = PlanDenseLightningIndexerSoftmaxLse(call.args(), call.options(), ContextOf(isa, threads));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      Workspace workspace;
      ASSERT_TRUE(plan->Run(call.args(), workspace).ok());
      const int64_t before = Allocations();
      const Status status = plan->Run(call.args(), workspace);
      EXPECT_EQ(Allocations(), before);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_THAT(plan->Describe(), HasSubstr("indexer lse, bf16: 4 sequences, 50 tokens"));
      EXPECT_THAT(plan->Describe(), HasSubstr("maximum and sum"));
    }
  }
}

TEST(IndexerLse, APlanRunsOnThePlannedCallAlone) {
  const LseCall call(UsualIndexer());
  const auto plan = PlanDenseLightningIndexerSoftmaxLse(call.args(), call.options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  DenseIndexerLseArgs args = call.args();
  constexpr int64_t kLengths[] = {40, 9, 4, 0, 2};
  args.lengths_kv = kLengths;
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("lengths_kv[4]=2, want 1 (as planned)"));
  args = call.args();
  args.softmax_sum_index.data = nullptr;
  EXPECT_THAT(std::string(plan->Run(args).message()), HasSubstr("softmax_sum_index: null data"));
  EXPECT_EQ(before.FirstChange(), -1);
}

using LseArgs = DenseIndexerLseArgs;
using LseOptions = DenseIndexerLseOptions;
struct LseMistake {
  const char* message;
  std::function<void(LseArgs*, LseOptions*)> make;
};

/// Returns mistakes in a call with B=2, N=4, S1=5, S2=40, D=16, f16.
std::vector<LseMistake> Mistakes() {
  static constexpr int64_t kTooMany[] = {5, 41};
  return {
      {"q_index: null data", [](LseArgs* a, LseOptions*) { a->q_index.data = nullptr; }},
      {"k_index: null data", [](LseArgs* a, LseOptions*) { a->k_index.data = nullptr; }},
      {"weights: null data", [](LseArgs* a, LseOptions*) { a->weights.data = nullptr; }},
      {"softmax_max_index: null data", [](LseArgs* a, LseOptions*) { a->softmax_max_index.data = nullptr; }},
      {"softmax_sum_index: null data", [](LseArgs* a, LseOptions*) { a->softmax_sum_index.data = nullptr; }},
      {"layout=BNSD, want BSND or TND", [](LseArgs*, LseOptions* o) { o->layout = Layout::kBNSD; }},
      {"mask=4, want none (0) or right-down causal (3)",
       [](LseArgs*, LseOptions* o) { o->mask = static_cast<SparseMask>(4); }},
      {"q_index.dtype=i8, want f32, f16 or bf16", [](LseArgs* a, LseOptions*) { a->q_index.dtype = DType::kI8; }},
      {"k_index.dtype=f32, want f16 (q_index.dtype)", [](LseArgs* a, LseOptions*) { a->k_index.dtype = DType::kF32; }},
      {"k_index.shape[2]=2, want 1 (one key head)", [](LseArgs* a, LseOptions*) { a->k_index.shape[2] = 2; }},
      {"k_index.shape[3]=15, want 16 (q_index.shape[3])", [](LseArgs* a, LseOptions*) { a->k_index.shape[3] = 15; }},
      {"weights.shape[2]=3, want 4 (q_index.shape[2])", [](LseArgs* a, LseOptions*) { a->weights.shape[2] = 3; }},
      {"softmax_max_index.dtype=f16, want f32",
       [](LseArgs* a, LseOptions*) { a->softmax_max_index.dtype = DType::kF16; }},
      {"softmax_max_index.shape=[2,5], want 3 dimensions (BSND)",
       [](LseArgs* a, LseOptions*) {
         a->softmax_max_index.shape = {2, 5};
         a->softmax_max_index.stride = {};
       }},
      {"softmax_sum_index.shape[2]=4, want 5 (q_index.shape[1])",
       [](LseArgs* a, LseOptions*) { a->softmax_sum_index.shape[2] = 4; }},
      {"softmax_sum_index.stride=[0,5,1], want strides that keep its elements apart",
       [](LseArgs* a, LseOptions*) {
         a->softmax_sum_index.stride = {0, 5, 1};
       }},
      {"softmax_sum_index: shares memory with softmax_max_index",
       [](LseArgs* a, LseOptions*) { a->softmax_sum_index.data = a->softmax_max_index.data; }},
      {"softmax_max_index: shares memory with weights",
       [](LseArgs* a, LseOptions*) { a->softmax_max_index.data = const_cast<void*>(a->weights.data); }},
      {"lengths_kv[1]=41, want 0..40 (k_index.shape[1])", [](LseArgs* a, LseOptions*) { a->lengths_kv = kTooMany; }},
  };
}

TEST(IndexerLse, MistakesAreNamedAndNothingIsWritten) {
  IndexerCase c;
  c.tokens.dtype = DType::kF16;
  c.tokens.lengths = {{5, 5}, {40, 40}};
  for (const LseMistake& mistake : Mistakes()) {
    const LseCall call(c);
    LseArgs args = call.args();
    LseOptions options = call.options();
    mistake.make(&args, &options);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    const Status status = DenseLightningIndexerSoftmaxLse(args, options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << mistake.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(mistake.message));
    EXPECT_EQ(before.FirstChange(), -1) << mistake.message;
  }
}

// Returns how far the loss may be off because of the statistics. Let a row's maximum be off by at most e, and its sum
// by at most r times itself. Then ln y of each key is off by at most e - ln(1 - r). The row's loss is off by at most
// this number times the row's sum of max(p, 1e-8).
double OffByStatistics(const reference::LossProblem& problem, const std::vector<ExpectedOutput>& allowed) {
  double bound = 0;
  const reference::Selection& s = problem.attention.selection;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      double p_sum = 0;
      for (const double p : reference::RowOfLoss(problem, b, t).p) p_sum += std::max(p, 1e-8);
      if (p_sum == 0) continue;
      const double relative = allowed[1].allowed[token] / allowed[1].want[token];
      EXPECT_LT(relative, 0.5);
      bound += p_sum * (allowed[0].allowed[token] - std::log1p(-relative));
    }
  }
  return bound;
}

// With the statistics of LseCall, the dense loss must match two references. One has the same statistics, and the other
// computes its own.
TEST(IndexerLse, GivesTheDenseLossItsStatistics) {
  const auto check = [&](DType dtype, Layout layout) {
    LossCase c{.dense = true, .heads = 6, .heads_kv = 3};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.lengths = {{5, 9, 7, 3}, {40, 4, 7, 0}};
    const reference::LossProblem problem = MakeReferenceProblem(c);
    const LseCall statistics({.tokens = c.tokens, .heads = c.heads_index, .d = c.d_index}, problem.indexer);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(statistics.Run(ContextOf(isa)).ok());
      reference::LossProblem given = problem;
      given.max_index = ValuesOf(statistics.Outputs(), "softmax_max_index");
      given.sum_index = ValuesOf(statistics.Outputs(), "softmax_sum_index");
      const LossCall loss(c, given);
      ASSERT_TRUE(loss.Run(ContextOf(isa)).ok());
      const std::vector<ExpectedOutput> expected = ExpectLoss(loss);
      EXPECT_TRUE(MatchesExpected(loss.Outputs(), expected)) << IsaName(isa) << " " << c;

      const double bound = expected.back().allowed[0] + OffByStatistics(problem, ExpectStatistics(statistics));
      const double want = reference::IndexerLoss(problem).loss, got = ValuesOf(loss.Outputs(), "loss")[0];
      EXPECT_TRUE(std::isfinite(bound) && bound < 0.01 * std::fabs(want)) << bound;
      EXPECT_TRUE(std::fabs(got - want) <= bound) << IsaName(isa) << " " << got << " want " << want << c;
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}});
}

}  // namespace
}  // namespace fa::test
