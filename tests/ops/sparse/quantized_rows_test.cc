// Compares sparse attention over rows of quantised keys with the reference in double, and with plain rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "ops/sparse/sparse_case.h"
#include "ops/sparse/sparse_expectation.h"
#include "support/compressed_number.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

constexpr DType kRowTypes[] = {DType::kI8, DType::kF8E4M3};

/// Returns a case with rows of 40 numbers and 8 rope columns, three scales per row, and lists of more than one block.
SparseCase Usual(DType dtype, DType rows) {
  SparseCase c{.heads = 3, .d = 48, .dv = 40, .merged = true, .rows = rows, .rope_columns = 8};
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{3, 2}, {300, 9}};
  c.tokens.slots = 150;
  return c;
}

void Check(const SparseCase& c) { EXPECT_TRUE(ForwardIsTheReference(c)); }

TEST(QuantizedRows, EveryTypeLayoutAndFormOfKeys) {
  const auto check = [&](DType dtype, DType rows, Layout layout, int64_t page_rows, bool merged) {
    SparseCase c = Usual(dtype, rows);
    c.merged = merged;
    c.dv = merged ? 40 : 24;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
    c.sink = page_rows > 0;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"rows", kRowTypes},
              Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"page_rows", {0, 7}}, Axis{"merged", {false, true}});
}

TEST(QuantizedRows, EveryNumberOfHeads) {
  const auto check = [&](int64_t heads, DType dtype, bool merged) {
    SparseCase c = Usual(dtype, kRowTypes[heads % 2]);
    c.heads = heads;
    c.merged = merged;
    Check(c);
  };
  ForEachCase(check, Axis{"heads", {1, 2, 3, 8, 9, 15, 16, 17, 33, 64, 130}}, Axis{"dtype", kTokenDTypes},
              Axis{"merged", {true, false}});
}

TEST(QuantizedRows, EverySizeOfTilesAndParts) {
  const auto check = [&](int64_t tile, int64_t columns, int64_t rope) {
    SparseCase c = Usual(kTokenDTypes[tile % 3], kRowTypes[columns % 2]);
    c.heads = tile % 2 == 0 ? 5 : 18;
    c.tile = tile;
    c.d = columns + rope;
    c.rope_columns = rope;
    c.dv = columns;
    c.tokens.slots = 20;
    Check(c);
  };
  ForEachCase(check, Axis{"tile", {1, 3, 16, 33, 64, 1000}}, Axis{"columns", {1, 40, 101}}, Axis{"rope", {0, 5, 16}});
}

TEST(QuantizedRows, OfDeepSeek) {
  for (const DType rows : kRowTypes) {
    SparseCase c{.heads = 16, .d = 576, .dv = 512, .merged = true, .rows = rows, .rope_columns = 64, .tile = 128};
    c.tokens.dtype = DType::kBF16;
    c.tokens.lengths = {{2}, {200}};
    c.tokens.slots = 140;
    c.tokens.page_rows = 16;
    EXPECT_EQ(OptionsOf(c).row_format.Bytes(DType::kBF16), 656);
    Check(c);
  }
}

// Rows lie at any address, so the rope part and the scales need not be aligned.
TEST(QuantizedRows, StridesAndPlaces) {
  const auto check = [&](DType dtype, int64_t page_rows) {
    SparseCase c = Usual(dtype, DType::kF8E4M3);
    c.d = 47;  // 39 numbers: the rope part begins at an odd byte
    c.dv = 39;
    c.tokens.page_rows = page_rows;
    c.tokens.padding = {.inner = 3, .middle = 5, .outer = 7};
    Check(c);
    c.tokens.padding = {};
    for (const Place place : {Place::kAtEnd, Place::kAtStart}) {
      c.tokens.placement = {.place = place};
      Check(c);
    }
    c.tokens.placement = {.misalignment = 1};
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"page_rows", {0, 16}});
}

TEST(QuantizedRows, BlocksOfKeysAndAbsentResults) {
  SparseCase c = Usual(DType::kBF16, DType::kI8);
  c.tokens.block_size = 8;
  c.tokens.slots = 20;
  Check(c);
  c.statistics = c.head_mean = false;
  c.tokens.causal = false;
  Check(c);
}

// Rows whose numbers times scales are exact in every type have the bits of plain rows with these values.
TEST(QuantizedRows, OfExactProductsHaveTheBitsOfPlainRows) {
  const auto check = [&](DType dtype, DType rows, int64_t heads, bool merged) {
    SparseCase c = Usual(dtype, rows);
    c.heads = heads;
    c.merged = merged;
    c.exact_rows = true;
    SparseCase plain = c;
    plain.rows.reset();
    for (const Isa isa : IsaLevels()) {
      const SparseCall quantized(c), of_plain(plain, MakeReferenceProblem(c));
      ASSERT_TRUE(quantized.Run(ContextOf(isa, 2)).ok());
      ASSERT_TRUE(of_plain.Run(ContextOf(isa, 2)).ok());
      EXPECT_TRUE(SameBits(quantized.Outputs(), of_plain.Outputs())) << IsaName(isa) << " " << c;
    }
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"rows", kRowTypes}, Axis{"heads", {1, 2, 5, 12, 18, 40}},
              Axis{"merged", {true, false}});
}

TEST(QuantizedRows, BitsDoNotDependOnThreads) {
  const auto check = [&](DType dtype, int64_t heads) {
    for (const Isa isa : IsaLevels()) {
      SparseCase c = Usual(dtype, kRowTypes[heads % 2]);
      c.heads = heads;
      const TokenOutputs want = ForwardOf(c, ContextOf(isa, 1));
      for (const int threads : {2, 7, 8}) EXPECT_TRUE(SameBits(ForwardOf(c, ContextOf(isa, threads)), want)) << c;
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"heads", {2, 15, 70}});
}

/// A call in which each token sees one key: query token t selects key t. So the output of token t is row t of the
/// dequantised V.
class OneKeyEach {
 public:
  OneKeyEach(DType dtype, DType rows, int64_t columns, int64_t tile) : case_(Usual(dtype, rows)) {
    case_.tile = tile;
    case_.d = columns + case_.rope_columns;
    case_.dv = columns;
    case_.tokens.lengths = {{4}, {4}};
    case_.tokens.causal = false;
    case_.tokens.slots = 1;
    reference::SparseProblem values = MakeReferenceProblem(case_);
    values.selection.indices = {0, 1, 2, 3};
    call_ = std::make_unique<SparseCall>(case_, std::move(values));
  }
  [[nodiscard]] std::byte* Row(int64_t key) const {
    return call_->keys().tensor.Address(call_->keys().Offset(0, 0, key));
  }
  void SetCode(int64_t key, int64_t column, uint8_t code) const { Row(key)[column] = std::byte{code}; }
  void SetScale(int64_t key, int64_t tile, float scale) const {
    const int64_t rope_bytes = case_.rope_columns * static_cast<int64_t>(SizeOf(case_.tokens.dtype));
    std::memcpy(Row(key) + case_.dv + rope_bytes + 4 * tile, &scale, sizeof scale);
  }
  /// Returns the output row of the token that selects `key`, for head 0.
  [[nodiscard]] std::vector<double> Out(Isa isa, int64_t key) const {
    EXPECT_TRUE(call_->Run(ContextOf(isa)).ok());
    const std::vector<double> out = ValuesOf(call_->Outputs(), "out");
    const auto first = out.begin() + key * case_.heads * case_.dv;
    return {first, first + case_.dv};
  }

 private:
  SparseCase case_;
  std::unique_ptr<SparseCall> call_;
};

// Both types have 256 codes; 0x7f and 0xff of f8e4m3 are NaN. Columns have codes in an order that no tile repeats.
TEST(QuantizedRows, EveryCode) {
  const auto check = [&](DType dtype, DType rows) {
    const OneKeyEach call(dtype, rows, 256, 128);
    for (int64_t code = 0; code < 256; ++code) {
      const bool nan = std::isnan(CompressedNumber(rows, static_cast<uint8_t>(code)));
      call.SetCode(1, code, static_cast<uint8_t>(nan ? 0 : code));
      call.SetCode(2, code, static_cast<uint8_t>(nan ? code : 0));
    }
    for (const int64_t key : {1, 2}) {
      call.SetScale(key, 0, 0.5F);
      call.SetScale(key, 1, -2);
    }
    for (const Isa isa : IsaLevels()) {
      const std::vector<double> out = call.Out(isa, 1), of_nan = call.Out(isa, 2);
      for (int64_t code = 0; code < 256; ++code) {
        const double number = CompressedNumber(rows, static_cast<uint8_t>(code));
        const double want = std::isnan(number) ? 0 : number * (code < 128 ? 0.5 : -2);
        EXPECT_EQ(out[code], want) << IsaName(isa) << " code " << code;
        // A NaN in a key makes its score NaN.
        EXPECT_EQ(std::isnan(of_nan[code]), rows == DType::kF8E4M3) << IsaName(isa) << " code " << code;
      }
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"rows", kRowTypes});
}

// The product of number and scale is rounded to f32. Kernels that multiply bf16 round it to bf16, and subnormal numbers
// may then become 0. The output is rounded to its type.
TEST(QuantizedRows, ScalesThatAreZeroNegativeHugeOrSubnormal) {
  const auto check = [&](DType dtype, DType rows) {
    const OneKeyEach call(dtype, rows, 64, 16);
    const float scales[] = {0.0F, -3.0F, 1e30F, 1e-40F};
    for (int64_t tile = 0; tile < 4; ++tile) {
      call.SetScale(3, tile, scales[tile]);
      for (int64_t x = 0; x < 16; ++x) call.SetCode(3, 16 * tile + x, NearestCode(rows, static_cast<float>(x - 8)));
    }
    for (const Isa isa : IsaLevels()) {
      const std::vector<double> out = call.Out(isa, 3);
      for (int64_t x = 0; x < 64; ++x) {
        const auto number = static_cast<float>(x % 16 - 8) * scales[x / 16];
        const double want = RoundTo(dtype, static_cast<double>(number));
        const bool flushed = dtype == DType::kBF16 && out[x] == 0 && std::fabs(want) < 0x1p-126;
        EXPECT_TRUE(out[x] == want || flushed) << IsaName(isa) << " column " << x << ": " << out[x] << " " << want;
      }
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"rows", kRowTypes});
}

TEST(QuantizedRows, ANanScaleReachesItsTokensAlone) {
  for (const DType dtype : kTokenDTypes) {
    const OneKeyEach call(dtype, DType::kI8, 64, 16);
    const std::vector<double> before = call.Out(Isa::kPortable, 0);
    call.SetScale(2, 1, std::numeric_limits<float>::quiet_NaN());
    for (const Isa isa : IsaLevels()) {
      for (const double value : call.Out(isa, 2)) EXPECT_TRUE(std::isnan(value));
      for (const double value : call.Out(isa, 0)) EXPECT_TRUE(std::isfinite(value));
    }
    EXPECT_EQ(call.Out(Isa::kPortable, 0), before);
  }
}

// Rows are dequantised a block at a time, so the workspace holds one block and not all keys. Only the selection needs
// memory per key, less than 16 bytes.
TEST(QuantizedRows, WorkspaceDoesNotGrowWithTheKeys) {
  const auto bytes = [](int64_t keys) {
    SparseCase c = Usual(DType::kBF16, DType::kF8E4M3);
    c.heads = 64;
    c.tokens.lengths = {{4}, {keys}};
    const SparseCall call(c);
    const auto plan = PlanSparseFlashAttention(call.args(), call.options());
    EXPECT_TRUE(plan.ok());
    return plan->workspace_bytes();
  };
  EXPECT_LT(bytes(9000) - bytes(1000), 16 * 8000);
}

struct Mistake {
  const char* name;
  const char* message;
  std::function<void(SparseAttentionArgs*, SparseAttentionOptions*)> make;
  bool separate_value = false;
};

using Args = SparseAttentionArgs;
using Options = SparseAttentionOptions;

const Mistake kMistakes[] = {
    {"RowsWithoutAFormat", "k.dtype=i8, want f16 (q.dtype)", [](Args*, Options* o) { o->row_format = {}; }},
    {"FormatWithoutRows", "k.dtype=f16, want i8 or f8e4m3 (row_format)",
     [](Args* a, Options*) { a->k.dtype = DType::kF16; }},
    {"NoColumns", "row_format.columns=0, want 1..48 (q.shape[3])",
     [](Args*, Options* o) { o->row_format.columns = 0; }},
    {"TooManyColumns", "row_format.columns=49, want 1..48 (q.shape[3])",
     [](Args*, Options* o) { o->row_format.columns = 49; }},
    {"AnotherRope", "row_format.rope=9, want 8 (q.shape[3]) - row_format.columns",
     [](Args*, Options* o) { o->row_format.rope = 9; }},
    {"NoTile", "row_format.tile=0, want at least 1", [](Args*, Options* o) { o->row_format.tile = 0; }},
    {"RowOfOtherBytes", "k.shape[3]=67, want 68 (bytes per row)", [](Args* a, Options*) { a->k.shape[3] = 67; }},
    {"OtherTiles", "k.shape[3]=68, want 76 (bytes per row)", [](Args*, Options* o) { o->row_format.tile = 8; }},
    {"OutOfTheRope", "out.shape[3]=41, want 1..40 (row_format.columns)",
     [](Args* a, Options*) { a->out.shape[3] = 41; }},
    {"Rope", "q_rope: given, want none with row_format", [](Args* a, Options*) { a->q_rope = a->k_rope = a->q; }},
    {"ValueOfAnotherType", "v.dtype=f8e4m3, want i8 (k.dtype)", [](Args* a, Options*) { a->v.dtype = DType::kF8E4M3; },
     true},
    {"ValueOfOtherBytes", "v.shape[3]=40, want 68 (bytes per row)", [](Args* a, Options*) { a->v.shape[3] = 40; },
     true},
    {"OutIsKey", "out: shares memory with k", [](Args* a, Options*) { a->out.data = const_cast<void*>(a->k.data); }},
};

class RefusedRows : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedRows, NamesTheArgumentAndWritesNothing) {
  SparseCase c = Usual(DType::kF16, DType::kI8);
  c.merged = !GetParam().separate_value;
  const SparseCall call(c);
  Args args = call.args();
  Options options = call.options();
  GetParam().make(&args, &options);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = SparseFlashAttention(args, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(GetParam().message));
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(All, RefusedRows, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(QuantizedRows, HaveNoGradient) {
  SparseCase c = Usual(DType::kBF16, DType::kI8);
  c.rows.reset();
  const SparseGradCall call(c);
  SparseAttentionOptions options = call.options();
  options.row_format = {.columns = 40, .rope = 8, .tile = 16};
  const Status status = SparseFlashAttentionGrad(call.args(), options);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("row_format: given, want none: quantised keys have no gradient"));
}

}  // namespace
}  // namespace fa::test
