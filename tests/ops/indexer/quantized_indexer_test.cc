// Compares the indexer of quantised queries and keys, compressed keys and index offsets with the reference in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/indexer/indexer_case.h"
#include "support/compressed_number.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

constexpr DType kCodeTypes[] = {DType::kI8, DType::kF8E4M3};
constexpr IndexerValues kValues[] = {IndexerValues::kNormal, IndexerValues::kSmallIntegers};

void Check(const IndexerCase& c) { EXPECT_TRUE(ForwardIsTheReference(c)); }

TEST(QuantizedIndexer, EveryTypeLayoutAndFormOfKeys) {
  const auto check = [&](DType codes, DType scales, Layout layout, int64_t page_rows, IndexerValues values) {
    IndexerCase c{.heads = 5, .d = 40, .values = values, .codes = codes, .scale_dtype = scales};
    c.tokens.dtype = scales;
    c.flat_scales = page_rows > 0;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    Check(c);
  };
  ForEachCase(check, Axis{"codes", kCodeTypes}, Axis{"scales", kTokenDTypes},
              Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"page_rows", {0, 7}}, Axis{"values", kValues});
}

// Tests few and many tokens, heads around the strips' widths, and heads of any size.
TEST(QuantizedIndexer, EverySize) {
  const auto check = [&](int64_t tokens, int64_t heads, int64_t d) {
    IndexerCase c{.heads = heads, .d = d, .f32_weights = true, .f32_values = true, .codes = kCodeTypes[heads % 2]};
    c.tokens.lengths = {{tokens}, {130}};
    c.tokens.slots = 33;
    c.flat_scales = d == 33;
    Check(c);
    c.values = IndexerValues::kSmallIntegers;
    Check(c);
  };
  ForEachCase(check, Axis{"tokens", {1, 2, 3, 20}}, Axis{"heads", {1, 8, 20, 64}}, Axis{"d", {1, 33, 128}});
}

// The products of the largest codes are exact: 1024 of them add up to 2^24.
TEST(QuantizedIndexer, ProductsOfTheLargestIntegersAreExact) {
  IndexerCase c{.heads = 2, .d = 1024, .f32_weights = true, .f32_values = true, .codes = DType::kI8};
  c.unit_scales = true;
  c.tokens.lengths = {{4}, {3}};
  c.tokens.causal = false;
  c.tokens.slots = 3;
  reference::IndexerProblem values = MakeReferenceProblem(c);
  for (double& q : values.q) q = -128;
  for (size_t x = 0; x < values.k.size(); ++x) values.k[x] = x < 1024 ? -128 : x < 2047 ? -127 : -126;
  const IndexerCall call(c, values);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    const std::vector<double> got = ValuesOf(call.Outputs(), "sparse_values");
    const double weight = values.weights[0] + values.weights[1];
    const double largest = std::max({128 * weight * 131072, 127 * weight * 131072, 126 * weight * 131072});
    // Four operations round once each: weight times query scale, the product with the exact sum, the sum over two
    // heads, and the product with the key's scale.
    EXPECT_NEAR(got[0], largest, 4 * 0x1p-24 * (std::fabs(values.weights[0]) + std::fabs(values.weights[1])) * 0x1p24);
  }
}

TEST(QuantizedIndexer, ScalesOfOneGiveTheBitsOfThePlainIndexer) {
  const auto check = [&](DType codes, int64_t tokens, int64_t heads) {
    IndexerCase c{.heads = heads, .d = 64, .f32_values = true, .codes = codes};
    c.unit_scales = true;
    c.tokens.dtype = DType::kBF16;
    c.tokens.lengths = {{tokens}, {200}};
    c.tokens.slots = 50;
    IndexerCase plain = c;
    plain.codes.reset();
    reference::IndexerProblem values = MakeReferenceProblem(c);
    values.k_scale.clear();
    const IndexerCall quantized(c), of_plain(plain, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(quantized.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(of_plain.Run(ContextOf(isa)).ok());
      EXPECT_TRUE(SameBits(quantized.Outputs(), of_plain.Outputs())) << IsaName(isa) << " " << c;
    }
  };
  ForEachCase(check, Axis{"codes", kCodeTypes}, Axis{"tokens", {1, 9}}, Axis{"heads", {4, 64}});
}

/// Expects these indices on every level.
void ExpectIndices(const IndexerCall& call, const std::vector<double>& want) {
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    EXPECT_EQ(ValuesOf(call.Outputs(), "sparse_indices"), want) << IsaName(isa);
  }
}

// One head with q = 1 and k = 1 makes a key's score its scale.
TEST(QuantizedIndexer, ScalesThatAreZeroNegativeHugeSubnormalOrNan) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const DType codes : kCodeTypes) {
    IndexerCase c{.heads = 1, .d = 1, .f32_values = true, .codes = codes};
    c.unit_scales = true;
    c.tokens.lengths = {{1}, {6}};
    c.tokens.slots = 6;
    reference::IndexerProblem values = MakeReferenceProblem(c);
    values.q = {1};
    values.k.assign(6, 1);
    values.k_scale = {0, -2, 1e38, 1e-40, kNan, 3};
    const IndexerCall call(c, values);
    const bool positive = values.weights[0] > 0;
    ExpectIndices(call, positive ? std::vector<double>{2, 5, 3, 0, 1, 4} : std::vector<double>{1, 0, 3, 5, 2, 4});
  }
}

// Every code is a key. The scores with q = 1 are the numbers of the codes, and NaN comes last.
TEST(QuantizedIndexer, EveryCodeOfAKey) {
  for (const DType codes : kCodeTypes) {
    IndexerCase c{.heads = 1, .d = 1, .f32_weights = true, .f32_values = true, .codes = codes};
    c.unit_scales = true;
    c.tokens.lengths = {{1}, {256}};
    c.tokens.slots = 256;
    reference::IndexerProblem values = MakeReferenceProblem(c);
    values.q = {1};
    for (int64_t key = 0; key < 256; ++key) values.k[key] = CompressedNumber(codes, static_cast<uint8_t>(key));
    const IndexerCall call(c, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const TokenOutputs got = call.Outputs();
      for (int64_t slot = 0; slot < 256; ++slot) {
        const auto key = static_cast<size_t>(ValuesOf(got, "sparse_indices")[slot]);
        const double score = ValuesOf(got, "sparse_values")[slot], number = values.k[key];
        if (std::isnan(number)) {
          EXPECT_TRUE(std::isnan(score) && slot >= 254) << key;
        } else {
          // Two products round once each. The bound must not come from the score, which may be infinite.
          const double want = values.weights[0] * std::max(number, 0.0);
          EXPECT_NEAR(score, want, 0x1p-23 * std::fabs(want)) << key;
        }
      }
    }
  }
}

TEST(CompressedKeys, LimitsOfEveryRatioAndResidual) {
  const auto check = [&](int64_t ratio, bool causal, Layout layout, IndexerValues values) {
    IndexerCase c{.heads = 3, .d = 24, .f32_values = true, .values = values, .ratio = ratio};
    c.tokens.dtype = DType::kBF16;
    c.tokens.layout = layout;
    c.tokens.causal = causal;
    // More queries than tokens of the keys, a sequence of one query, and one without keys.
    c.tokens.lengths = {{9, 1, 30, 2}, {2, 40, 12, 0}};
    c.residual = {ratio - 1, 0, ratio / 2, 0};
    Check(c);
    c.residual.clear();
    c.codes = DType::kI8;
    Check(c);
  };
  ForEachCase(check, Axis{"ratio", {1, 2, 4, 7, 128}}, Axis{"causal", {false, true}},
              Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"values", kValues});
}

TEST(IndexOffset, IsAddedToUsedIndices) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const IndexerValues values : kValues) {
      IndexerCase c{.values = values, .offsets = true};
      c.tokens.layout = layout;
      c.tokens.lengths = {{9, 2}, {4, 30}};
      c.tokens.spare_q = 2;
      Check(c);
    }
  }
}

TEST(IndexOffset, PerBatchElement) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    IndexerCase c;
    c.tokens.layout = layout;
    c.tokens.lengths = {{3, 2}, {4, 30}};
    const IndexerCall plain(c), call(c);
    LightningIndexerArgs args = call.args();
    const std::vector<int32_t> offsets = {100, 7000};
    args.index_offset = {offsets.data(), DType::kI32, {2}, {}};
    ASSERT_TRUE(plain.Run(nullptr).ok());
    ASSERT_TRUE(LightningIndexer(args, call.options()).ok());
    std::vector<double> want = ValuesOf(plain.Outputs(), "sparse_indices");
    for (int64_t x = 0; x < std::ssize(want); ++x) {
      if (want[x] != -1) want[x] += offsets[x / c.tokens.slots < 3 ? 0 : 1];
    }
    EXPECT_EQ(ValuesOf(call.Outputs(), "sparse_indices"), want);
  }
}

TEST(IndexOffset, BeyondTheIntegersIsRefused) {
  IndexerCase c;
  c.tokens.lengths = {{3}, {40}};
  const IndexerCall call(c);
  LightningIndexerArgs args = call.args();
  std::vector<int32_t> offsets = {0, 0, 0};
  args.index_offset = {offsets.data(), DType::kI32, {1, 3, 1}, {}};
  for (const int32_t wrong : {-1, std::numeric_limits<int32_t>::max() - 38}) {
    offsets[1] = wrong;
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_THAT(std::string(LightningIndexer(args, call.options()).message()),
                ::testing::HasSubstr("index_offset[0][1][0]=" + std::to_string(wrong) + ", want 0..2147483608"));
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

// Rows behind the used rows of a packed sequence count as rows past the length, and keys behind the used keys as
// absent.
TEST(UsedRows, OfPackedSequences) {
  for (const DType dtype : kTokenDTypes) {
    IndexerCase c{.heads = 3, .d = 24, .f32_values = true};
    c.tokens.dtype = dtype;
    c.tokens.layout = Layout::kTND;
    c.tokens.lengths = {{5, 4, 3}, {40, 9, 20}};
    const IndexerCall whole(c);
    LightningIndexerArgs args = whole.args();
    const std::vector<int64_t> used_q = {3, 0, 3}, used_kv = {30, 9, 20};
    args.used_q = used_q;
    args.used_kv = used_kv;
    ASSERT_TRUE(LightningIndexer(args, whole.options()).ok());
    const TokenOutputs got = whole.Outputs();
    // The same rows, as padded batch elements, must give the same results.
    IndexerCase padded = c;
    padded.tokens.layout = Layout::kBSND;
    padded.tokens.spare_q = 2;
    const IndexerCall by_batch(padded);
    LightningIndexerArgs of_batch = by_batch.args();
    of_batch.lengths_q = used_q;
    of_batch.lengths_kv = used_kv;
    ASSERT_TRUE(LightningIndexer(of_batch, by_batch.options()).ok());
    const TokenOutputs want = by_batch.Outputs();
    for (const char* name : {"sparse_indices", "sparse_values"}) {
      EXPECT_EQ(ValuesOf(got, name), ValuesOf(want, name)) << name;
    }
    EXPECT_EQ(ValuesOf(got, "sparse_indices")[3 * c.tokens.slots], -1);
  }
}

TEST(QuantizedIndexer, BitsDoNotDependOnThreads) {
  for (const Isa isa : IsaLevels()) {
    for (const DType codes : kCodeTypes) {
      IndexerCase c{.heads = 6, .d = 40, .f32_values = true, .codes = codes, .ratio = 2};
      c.tokens.lengths = {{9, 0, 40, 1}, {300, 3, 170, 640}};
      c.tokens.slots = 100;
      const TokenOutputs want = ForwardOf(c, ContextOf(isa, 1));
      for (const int threads : {2, 7, 8}) EXPECT_TRUE(SameBits(ForwardOf(c, ContextOf(isa, threads)), want)) << threads;
    }
  }
}

using Args = LightningIndexerArgs;
using Options = LightningIndexerOptions;

struct Mistake {
  const char* name;
  const char* message;
  std::function<void(Args*, Options*)> make;
  Layout layout = Layout::kBSND;
  int64_t page_rows = 0;
};

constexpr int64_t kOne[] = {1}, kTwo[] = {1, 2}, kTooMany[] = {5, 6}, kNegative[] = {0, -1};

const Mistake kMistakes[] = {
    {"NoScaleOfQueries", "q.dtype=i8, want f32, f16 or bf16", [](Args* a, Options*) { a->q_scale = a->k_scale = {}; }},
    {"NoScaleOfKeys", "k_scale: missing, want it with q_scale", [](Args* a, Options*) { a->k_scale = {}; }},
    {"NoPlaceOfScalesOfKeys", "k_scale: missing, want it with q_scale",
     [](Args* a, Options*) { a->k_scale.data = nullptr; }},
    {"ScaleOfKeysAlone", "k_scale: given, want none without q_scale",
     [](Args* a, Options*) {
       a->q_scale = {};
       a->q.dtype = a->k.dtype = DType::kF16;
     }},
    {"FloatsWithScales", "q.dtype=f16, want i8 or f8e4m3 (q_scale)",
     [](Args* a, Options*) { a->q.dtype = DType::kF16; }},
    {"KeysOfAnotherType", "k.dtype=f8e4m3, want i8 (q.dtype)", [](Args* a, Options*) { a->k.dtype = DType::kF8E4M3; }},
    {"ScalesOfAnotherType", "q_scale.dtype=i8, want f32, f16 or bf16",
     [](Args* a, Options*) { a->q_scale.dtype = DType::kI8; }},
    {"KeyScalesOfAnotherType", "k_scale.dtype=i32, want f32, f16 or bf16",
     [](Args* a, Options*) { a->k_scale.dtype = DType::kI32; }},
    {"ScalesOfOtherHeads", "q_scale.shape[2]=3, want 4 (q.shape[2])",
     [](Args* a, Options*) { a->q_scale.shape[2] = 3; }},
    {"ScalesOfOtherKeys", "k_scale.shape[1]=39, want 40 (k.shape[1])",
     [](Args* a, Options*) { a->k_scale.shape[1] = 39; }},
    {"ScalesOfOtherPages", "k_scale.shape[1]=15, want 16 (k.shape[1])",
     [](Args* a, Options*) { a->k_scale.shape[1] = 15; }, Layout::kBSND, 16},
    {"RatioOfNothing", "cmp_ratio=0, want 1..1048576", [](Args*, Options* o) { o->cmp_ratio = 0; }},
    {"ResidualOfOneElement", "residual_kv has 1 entries, want 2 (batch)",
     [](Args* a, Options*) { a->residual_kv = kOne; }},
    {"ResidualOfAWholeKey", "residual_kv[1]=2, want 0..1 (cmp_ratio - 1)",
     [](Args* a, Options* o) {
       a->residual_kv = kTwo;
       o->cmp_ratio = 2;
     }},
    {"UsedRowsWithoutPacking", "used_q: given, want none: rows are not packed, use lengths_q",
     [](Args* a, Options*) { a->used_q = kTwo; }},
    {"MoreUsedThanThereAre", "used_q[1]=6, want 0..5 (lengths_q)", [](Args* a, Options*) { a->used_q = kTooMany; },
     Layout::kTND},
    {"NegativeUsed", "used_kv[1]=-1, want 0..40 (lengths_kv)", [](Args* a, Options*) { a->used_kv = kNegative; },
     Layout::kTND},
    {"UsedKeysInPages", "used_kv: given, want none: rows are not packed, use lengths_kv",
     [](Args* a, Options*) { a->used_kv = kTwo; }, Layout::kTND, 16},
    {"OffsetOfAnotherType", "index_offset.dtype=f16, want i32",
     [](Args* a, Options*) { a->index_offset = a->q_scale; }},
    {"OffsetOfOtherElements", "index_offset.shape[0]=3, want 2 (batch)",
     [](Args* a, Options*) {
       a->index_offset = {a->k_scale.data, DType::kI32, {3}, {}};
     }},
};

class RefusedQuantizedIndexer : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedQuantizedIndexer, NamesTheArgumentAndWritesNothing) {
  IndexerCase c{.codes = DType::kI8, .scale_dtype = DType::kF16};
  c.tokens.dtype = DType::kF16;
  c.tokens.layout = GetParam().layout;
  c.tokens.page_rows = GetParam().page_rows;
  c.tokens.lengths = {{5, 5}, {40, 40}};
  const IndexerCall call(c);
  Args args = call.args();
  Options options = call.options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = LightningIndexer(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(GetParam().message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedQuantizedIndexer, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa::test
