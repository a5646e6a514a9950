// Compares the forward of sparse attention with the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fa/flash_attention.h"
#include "ops/sparse/random_sparse_case.h"
#include "ops/sparse/sparse_case.h"
#include "ops/sparse/sparse_expectation.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

void Check(const SparseCase& c) { EXPECT_TRUE(ForwardIsTheReference(c)); }

/// Returns lengths of several sequences. Among them are sequences with more queries than keys, without queries, without
/// keys, and with one key.
reference::Lengths MixedLengths() { return {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}}; }

TEST(SparseForward, EveryTypeLayoutAndFormOfKeys) {
  const auto check = [&](DType dtype, Layout layout, int64_t page_rows, bool merged) {
    SparseCase c{.heads = 3, .d = 40, .d_rope = merged ? 8 : 0, .dv = 24, .merged = merged};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = MixedLengths();
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"page_rows", {0, 7}}, Axis{"merged", {false, true}});
}

TEST(SparseForward, EveryHeadSize) {
  struct Sizes {
    int64_t d, d_rope, dv;
    bool merged;
  };
  const Sizes all[] = {{512, 64, 512, true}, {512, 64, 512, false}, {128, 0, 128, false},
                       {128, 0, 128, true},  {40, 0, 40, false},    {40, 24, 17, true},
                       {1, 0, 1, false},     {33, 3, 65, false},    {16, 64, 5, true}};
  for (const Sizes& sizes : all) {
    for (const DType dtype : kTokenDTypes) {
      SparseCase c{.heads = 4, .d = sizes.d, .d_rope = sizes.d_rope, .dv = sizes.dv, .merged = sizes.merged};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{3}, {60}};
      c.tokens.slots = 37;
      Check(c);
    }
  }
}

TEST(SparseForward, EveryNumberOfHeads) {
  for (const int64_t heads : {1, 3, 15, 16, 17, 32, 64, 100, 128}) {
    for (const DType dtype : kTokenDTypes) {
      SparseCase c{.heads = heads, .d = 32, .d_rope = 16, .dv = 32, .merged = true};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{2}, {50}};
      c.tokens.slots = 33;
      Check(c);
    }
  }
}

// The row's limit may cut a block. This block may be anywhere in the list, even more than once.
TEST(SparseForward, EveryBlockSize) {
  const auto check = [&](int64_t block_size, ListForm lists, bool causal) {
    SparseCase c{.heads = 2, .d = 24, .dv = 24};
    c.tokens.dtype = kTokenDTypes[block_size % 3];
    c.tokens.lengths = {{4, 2}, {3 * block_size + 5, block_size}};
    c.tokens.block_size = block_size;
    c.tokens.slots = 5;
    c.tokens.lists = lists;
    c.tokens.causal = causal;
    Check(c);
  };
  ForEachCase(check, Axis{"block_size", {1, 2, 3, 8, 16, 64, 100, 128}},
              Axis{"lists", {ListForm::kDistinct, ListForm::kMessy}}, Axis{"causal", {false, true}});
}

// Some rows see no key, and some sequences have no keys.
TEST(SparseForward, SinksOfEveryTypeLayoutFormAndNumberOfHeads) {
  const auto check = [&](int64_t heads, DType dtype, Layout layout) {
    SparseCase c{.heads = heads, .d = 40, .d_rope = heads % 2 == 0 ? 8 : 0, .dv = 24, .merged = heads == 3};
    c.sink = true;
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = heads == 3 ? 7 : 0;
    c.tokens.lengths = MixedLengths();
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
    Check(c);
    c.statistics = false;
    c.tokens.placement.place = Place::kAtEnd;
    Check(c);
  };
  ForEachCase(check, Axis{"heads", {1, 3, 18, 150}}, Axis{"dtype", kTokenDTypes},
              Axis{"layout", {Layout::kBSND, Layout::kTND}});
}

TEST(SparseForward, ARowWithoutKeysHasItsSink) {
  SparseCase c{.heads = 4, .d = 16, .dv = 16};
  c.sink = true;
  c.tokens.lengths = {{3, 2}, {2, 0}};
  const SparseCall call(c);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    const TokenOutputs got = call.Outputs();
    for (int64_t n = 0; n < c.heads; ++n) {
      // The causal mask leaves token 0 of the first sequence without keys. The second sequence has no keys.
      EXPECT_EQ(ValuesOf(got, "max")[n], call.values().sink[n]);
      EXPECT_EQ(ValuesOf(got, "sum")[n], 1);
      EXPECT_EQ(ValuesOf(got, "max")[3 * c.heads + n], 0);
      EXPECT_EQ(ValuesOf(got, "sum")[3 * c.heads + n], 0);
    }
  }
}

// A sink far above all scores takes all the weight, and a sink far below them takes none.
TEST(SparseForward, SinksFarAboveAndBelowTheScores) {
  SparseCase c{.heads = 5, .d = 16, .dv = 16};
  const TokenOutputs without = ForwardOf(c, nullptr);
  c.sink = true;
  reference::SparseProblem values = MakeReferenceProblem(c);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  values.sink = {-kInf, -1e30, -200, 200, 1e30};
  const SparseCall call(c, values);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    const TokenOutputs got = call.Outputs();
    const auto rows = std::ssize(ValuesOf(got, "max"));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t n = row % c.heads;
      if (ValuesOf(without, "sum")[row] == 0) continue;
      for (int64_t x = row * c.dv; x < (row + 1) * c.dv; ++x) {
        const double own = ValuesOf(without, "out")[x];
        EXPECT_TRUE(std::fabs(ValuesOf(got, "out")[x] - (n < 3 ? own : 0)) <= 1e-5 * (1 + std::fabs(own))) << n;
      }
      if (n < 3) continue;
      EXPECT_EQ(ValuesOf(got, "max")[row], static_cast<double>(static_cast<float>(values.sink[n])));
    }
  }
}

TEST(SparseForward, AnInfiniteSinkIsAnOverwhelmingOne) {
  const auto check = [&](DType dtype, int64_t heads) {
    SparseCase c{.heads = heads, .d = 24, .dv = 24};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{3, 2}, {2, 40}};  // one token sees no key
    c.sink = true;
    reference::SparseProblem values = MakeReferenceProblem(c);
    constexpr double kInf = std::numeric_limits<double>::infinity();
    std::fill(values.sink.begin(), values.sink.end(), kInf);
    const SparseCall infinite(c, values);
    std::fill(values.sink.begin(), values.sink.end(), 3e38);
    const SparseCall overwhelming(c, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(infinite.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(overwhelming.Run(ContextOf(isa)).ok());
      const TokenOutputs got = infinite.Outputs(), want = overwhelming.Outputs();
      for (const char* name : {"out", "sum", "p_head_mean"}) {
        EXPECT_EQ(ValuesOf(got, name), ValuesOf(want, name)) << IsaName(isa) << " " << name << " " << c;
      }
      for (const double value : ValuesOf(got, "out")) ASSERT_EQ(value, 0) << IsaName(isa) << " " << c;
      for (const double value : ValuesOf(got, "max")) ASSERT_EQ(value, kInf) << IsaName(isa) << " " << c;
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"heads", {2, 12, 18}});
}

TEST(SparseForward, OneKeyHasItsValue) {
  const auto check = [&](DType dtype, int64_t heads) {
    SparseCase c{.heads = heads, .d = 24, .dv = 24};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{4}, {40}};
    c.tokens.slots = 1;
    const SparseCall call(c);
    const reference::SparseProblem& p = call.values();
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const TokenOutputs outputs = call.Outputs();
      const std::vector<double>& got = ValuesOf(outputs, "out");
      for (int64_t t = 0; t < 4; ++t) {
        const double* v = p.Value(p.selection.KeysOf(0, t).front().key);
        for (int64_t x = 0; x < heads * c.dv; ++x) {
          ASSERT_EQ(got[t * heads * c.dv + x], v[x % c.dv]) << IsaName(isa) << " " << c;
        }
      }
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"heads", {1, 3, 12, 18}});
}

TEST(SparseForward, RowsAboveTheDiagonalAreEmpty) {
  for (const bool causal : {false, true}) {
    SparseCase c{.heads = 16, .d = 16, .dv = 16};
    c.tokens.lengths = {{9}, {4}};
    c.tokens.causal = causal;
    c.tokens.spare_q = 1;
    Check(c);
    const TokenOutputs got = ForwardOf(c, nullptr);
    for (int64_t x = 0; x < 5 * c.heads * c.dv; ++x) EXPECT_EQ(ValuesOf(got, "out")[x] == 0, causal) << x;
    for (int64_t x = 0; x < 5 * c.heads; ++x) EXPECT_EQ(ValuesOf(got, "sum")[x] == 0, causal) << x;
  }
}

TEST(SparseForward, ListsOfEveryLength) {
  for (const int64_t slots : {1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 300, 700}) {
    SparseCase c{.heads = 5, .d = 32, .dv = 32};
    c.tokens.dtype = kTokenDTypes[slots % 3];
    c.tokens.lengths = {{2}, {600}};
    c.tokens.slots = slots;
    c.tokens.lists = slots % 2 == 0 ? ListForm::kDistinct : ListForm::kMessy;
    Check(c);
  }
}

// With one head (AVX2, AVX-512) or two (AVX-512), one loop computes P V of 64 keys and the scores of the next 64 keys.
TEST(SparseForward, FewHeadsAtTheEndsOfBlocksOf64Keys) {
  const auto check = [&](int64_t heads, int64_t slots, DType dtype, bool merged) {
    SparseCase c{.heads = heads, .d = 64, .d_rope = 16, .dv = merged ? 64 : 48, .merged = merged};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{3}, {230}};
    c.tokens.slots = slots;
    Check(c);
  };
  ForEachCase(check, Axis{"heads", {1, 2, 5}}, Axis{"slots", {63, 64, 65, 128, 130, 200}},
              Axis{"dtype", {DType::kF32, DType::kBF16}}, Axis{"merged", {false, true}});
}

TEST(SparseForward, LongListsWithManyHeads) {
  for (const DType dtype : kTokenDTypes) {
    SparseCase c{.heads = 20, .d = 64, .d_rope = 16, .dv = 64, .merged = true};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{3}, {900}};
    c.tokens.slots = 520;
    Check(c);
  }
}

TEST(SparseForward, LengthsThatAreNotGiven) {
  SparseCase c;
  c.tokens.lengths = {{5, 5}, {30, 30}};
  c.tokens.lengths_given = false;
  Check(c);
}

TEST(SparseForward, SequencesWithoutQueriesOrKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const reference::Lengths& lengths :
         {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{0, 0, 4}, {0, 3, 6}}}) {
      SparseCase c;
      c.tokens.layout = layout;
      c.tokens.lengths = lengths;
      Check(c);
      c.tokens.spare_q = c.tokens.spare_k = 2;
      Check(c);
    }
  }
}

TEST(SparseForward, ListsOf64BitEntries) {
  for (const ListForm lists : {ListForm::kDistinct, ListForm::kMessy}) {
    SparseCase c;
    c.tokens.index_dtype = DType::kI64;
    c.tokens.lists = lists;
    Check(c);
  }
}

TEST(SparseForward, OptionalResultsMayBeAbsent) {
  SparseCase c;
  for (const bool statistics : {false, true}) {
    for (const bool head_mean : {false, true}) {
      c.statistics = statistics;
      c.head_mean = head_mean;
      Check(c);
    }
  }
}

TEST(SparseForward, ScalesOfEverySign) {
  for (const float scale : {0.0F, -0.7F, 3.0F}) {
    SparseCase c;
    c.scale = scale;
    Check(c);
  }
}

TEST(SparseForward, StridesAndPlacesOfTensors) {
  const auto check = [&](DType dtype, Layout layout, int64_t page_rows) {
    SparseCase c{.heads = 3, .d = 20, .d_rope = 6, .dv = 12};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = {{3, 4}, {40, 20}};
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
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"page_rows", {0, 16}});
}

TEST(SparseForward, PagesOfEverySize) {
  for (const int64_t page_rows : {1, 2, 7, 16, 33, 64, 128, 500}) {
    for (const int64_t block_size : {1, 8}) {
      SparseCase c{.heads = 2, .d = 24, .dv = 24, .merged = block_size == 8};
      c.tokens.dtype = kTokenDTypes[page_rows % 3];
      c.tokens.page_rows = page_rows;
      c.tokens.block_size = block_size;
      c.tokens.lengths = {{2, 3, 1}, {130, 0, 33}};
      c.tokens.slots = 24;
      Check(c);
    }
  }
}

/// Returns a call with invalid entries in the lists of a case.
SparseCall WithInvalidEntries(const SparseCase& c) {
  reference::SparseProblem values = MakeReferenceProblem(c);
  constexpr int64_t kInvalid[] = {-2, 0x7FFFFFFF, -0x7FFFFFFF - 1, 41, 1000};
  for (size_t x = 0; x < values.selection.indices.size(); x += 3) {
    values.selection.indices[x] = kInvalid[x / 3 % std::size(kInvalid)];
  }
  return SparseCall(c, std::move(values));
}

TEST(SparseForward, UncheckedInvalidEntriesAreSkipped) {
  for (const int64_t block_size : {1, 8}) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      SparseCase c;
      c.check_indices = false;
      c.tokens.block_size = block_size;
      c.tokens.index_dtype = index_dtype;
      c.tokens.lists = ListForm::kMessy;
      // The byte after the last key is unreadable.
      c.tokens.placement.place = Place::kAtEnd;
      EXPECT_TRUE(ForwardIsTheReference(WithInvalidEntries(c)));
    }
  }
}

// A key that no list names is never multiplied, so it has no influence, whatever it holds.
TEST(SparseForward, KeysThatNobodySelectsAreNeverRead) {
  constexpr double kPoison[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                3e38};
  const auto check = [&](double poison, int64_t block_size) {
    SparseCase c{.heads = 17, .d = 24, .d_rope = 8, .dv = 24, .merged = block_size == 8};
    c.tokens.lengths = {{4}, {200}};
    c.tokens.block_size = block_size;
    reference::SparseProblem values = MakeReferenceProblem(c);
    std::vector<bool> selected(200);
    for (int64_t t = 0; t < 4; ++t) {
      for (const reference::SelectedKey& at : values.selection.KeysOf(0, t)) selected[at.key] = true;
    }
    int64_t poisoned = 0;
    for (int64_t key = 0; key < 200; ++key) {
      if (selected[key]) continue;
      ++poisoned;
      std::fill_n(&values.k[key * c.d], c.d, poison);
      std::fill_n(&values.k_rope[key * c.d_rope], c.d_rope, poison);
      if (!c.merged) std::fill_n(&values.v[key * c.dv], c.dv, poison);
    }
    ASSERT_GT(poisoned, 5);
    EXPECT_TRUE(ForwardIsTheReference(SparseCall(c, std::move(values)))) << poison;
  };
  ForEachCase(check, Axis{"poison", kPoison}, Axis{"block_size", {1, 8}});
}

// A NaN in a key reaches the tokens whose lists name the key, and no other tokens.
TEST(SparseForward, NonFiniteKeysStayWithTheirTokens) {
  const auto check = [&](DType dtype) {
    SparseCase c{.heads = 18, .d = 24, .dv = 24};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{6}, {50}};
    c.tokens.slots = 20;
    reference::SparseProblem values = MakeReferenceProblem(c);
    constexpr int64_t kKey = 17;
    values.k[kKey * c.d + 3] = std::numeric_limits<double>::quiet_NaN();
    for (const Isa isa : IsaLevels()) {
      const TokenOutputs clean = ForwardOf(c, ContextOf(isa));
      const SparseCall call(c, values);
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const TokenOutputs got = call.Outputs();
      int64_t touched = 0;
      for (int64_t t = 0; t < 6; ++t) {
        const auto keys = values.selection.KeysOf(0, t);
        const bool names_it = std::any_of(keys.begin(), keys.end(), [](const auto& at) { return at.key == kKey; });
        touched += names_it ? 1 : 0;
        for (int64_t x = t * c.heads * c.dv; x < (t + 1) * c.heads * c.dv; ++x) {
          const double value = ValuesOf(got, "out")[x];
          ASSERT_TRUE(names_it ? std::isnan(value) : value == ValuesOf(clean, "out")[x]) << IsaName(isa) << " " << t;
        }
      }
      EXPECT_GT(touched, 0);
      EXPECT_LT(touched, 6);
    }
  };
  ForEachCase(check, Axis{"type", kTokenDTypes});
}

TEST(SparseForward, IsDenseAttentionWhereEveryKeyIsSelected) {
  for (const DType dtype : kTokenDTypes) {
    SparseCase c{.heads = 4, .d = 48, .dv = 32};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{30}, {45}};
    c.tokens.slots = 45;
    c.tokens.lists = ListForm::kEveryKey;
    const SparseCall call(c);
    const SparseAttentionArgs sparse = call.args();
    AttentionArgs args;
    args.q = sparse.q;
    args.k = sparse.k;
    args.v = sparse.v;
    args.out = sparse.out;
    AttentionOptions options;
    options.layout = Layout::kBSND;
    options.mask = Mask::Causal();
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(FlashAttention(args, options, ContextOf(isa)).ok());
      const std::vector<double> dense = ValuesOf(call.Outputs(), "out");
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const std::vector<double> got = ValuesOf(call.Outputs(), "out");
      const ExpectedOutput expected = ExpectForward(call)[0];
      for (size_t x = 0; x < got.size(); ++x) ASSERT_LE(std::fabs(got[x] - dense[x]), 2 * expected.allowed[x]) << x;
    }
  }
}

TEST(SparseForward, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    ASSERT_TRUE(ForwardIsTheReference(RandomSparseCase(static_cast<uint64_t>(seed)), 1 + seed % 3));
  }
}

}  // namespace
}  // namespace fa::test
