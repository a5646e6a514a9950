// Compares the backward of sparse attention with the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/sparse/random_sparse_case.h"
#include "ops/sparse/sparse_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

void CheckBackward(const SparseCase& c) { EXPECT_TRUE(BackwardIsTheReference(c)); }

TEST(SparseBackward, EveryTypeAndLayoutWithAndWithoutValues) {
  const auto check = [&](DType dtype, Layout layout, bool merged, int64_t d_rope) {
    SparseCase c{.heads = 3, .d = 40, .d_rope = d_rope, .dv = 24, .merged = merged};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"merged", {false, true}}, Axis{"d_rope", {0, 8}});
}

TEST(SparseBackward, SinksOfEveryTypeLayoutAndNumberOfHeads) {
  const auto check = [&](int64_t heads, DType dtype, Layout layout) {
    SparseCase c{.heads = heads, .d = 40, .d_rope = heads % 2 == 0 ? 8 : 0, .dv = 24, .merged = heads == 3};
    c.sink = true;
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
    c.tokens.placement.place = heads == 3 ? Place::kAtEnd : Place::kInside;
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"heads", {1, 3, 18, 150}}, Axis{"dtype", kTokenDTypes},
              Axis{"layout", {Layout::kBSND, Layout::kTND}});
}

// A sink of +inf takes all the weight, and a sink of -inf takes none. Token 0 sees no key.
TEST(SparseBackward, InfiniteSinksHaveTheGradientZero) {
  const auto check = [&](DType dtype, int64_t heads, double sink) {
    SparseCase c{.heads = heads, .d = 24, .d_rope = 8, .dv = 24};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{3, 2}, {2, 40}};
    c.sink = true;
    reference::SparseProblem values = MakeReferenceProblem(c);
    std::fill(values.sink.begin(), values.sink.end(), sink * std::numeric_limits<double>::infinity());
    const SparseGradCall call(c, values);
    for (const Isa isa : IsaLevels()) {
      call.TakeSnapshot().Forget();
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const TokenOutputs got = call.Outputs();
      for (const double value : ValuesOf(got, "dsink")) EXPECT_EQ(value, 0) << IsaName(isa) << " " << c;
      for (const char* name : {"dq", "dk", "dv", "dq_rope", "dk_rope"}) {
        const std::vector<double>& gradient = ValuesOf(got, name);
        const bool none = std::all_of(gradient.begin(), gradient.end(), [](double x) { return x == 0; });
        const bool numbers = std::none_of(gradient.begin(), gradient.end(), [](double x) { return std::isnan(x); });
        EXPECT_EQ(none, sink > 0) << IsaName(isa) << " " << name << " " << c;
        EXPECT_TRUE(numbers) << IsaName(isa) << " " << name << " " << c;
      }
    }
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"heads", {3, 12}}, Axis{"sink", {1.0, -1.0}});
}

TEST(SparseBackward, SinksOfNoTokensHaveTheGradientZero) {
  for (const reference::Lengths& lengths : {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}}) {
    SparseCase c;
    c.sink = true;
    c.tokens.lengths = lengths;
    CheckBackward(c);
    for (const double value : ValuesOf(BackwardOf(c, nullptr), "dsink")) EXPECT_EQ(value, 0);
  }
}

TEST(SparseBackward, EveryHeadSize) {
  struct Sizes {
    int64_t d, d_rope, dv;
    bool merged;
  };
  const Sizes all[] = {{512, 64, 512, true}, {512, 64, 512, false}, {128, 0, 128, false}, {40, 0, 40, true},
                       {40, 24, 17, true},   {1, 0, 1, false},      {33, 3, 65, false},   {16, 64, 5, true}};
  for (const Sizes& sizes : all) {
    for (const DType dtype : kTokenDTypes) {
      SparseCase c{.heads = 4, .d = sizes.d, .d_rope = sizes.d_rope, .dv = sizes.dv, .merged = sizes.merged};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{3}, {45}};
      c.tokens.slots = 30;
      CheckBackward(c);
    }
  }
}

TEST(SparseBackward, EveryNumberOfHeads) {
  for (const int64_t heads : {1, 3, 15, 16, 17, 32, 64, 100, 128}) {
    for (const DType dtype : kTokenDTypes) {
      SparseCase c{.heads = heads, .d = 32, .d_rope = 16, .dv = 32, .merged = heads % 2 == 0};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{3}, {50}};
      c.tokens.slots = 33;
      CheckBackward(c);
    }
  }
}

TEST(SparseBackward, EveryBlockSize) {
  const auto check = [&](int64_t block_size, ListForm lists, bool causal) {
    SparseCase c{.heads = 2, .d = 24, .dv = 24, .merged = causal};
    c.tokens.dtype = kTokenDTypes[block_size % 3];
    c.tokens.lengths = {{4, 2}, {3 * block_size + 5, block_size}};
    c.tokens.block_size = block_size;
    c.tokens.slots = 5;
    c.tokens.lists = lists;
    c.tokens.causal = causal;
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"block_size", {1, 2, 3, 8, 16, 64, 100, 128}},
              Axis{"lists", {ListForm::kDistinct, ListForm::kMessy}}, Axis{"causal", {false, true}});
}

TEST(SparseBackward, ListsOfEveryLength) {
  for (const int64_t slots : {1, 2, 31, 33, 64, 65, 127, 129, 256, 300, 700}) {
    SparseCase c{.heads = 5, .d = 32, .dv = 32};
    c.tokens.dtype = kTokenDTypes[slots % 3];
    c.tokens.lengths = {{3}, {600}};
    c.tokens.slots = slots;
    c.tokens.lists = slots % 2 == 0 ? ListForm::kDistinct : ListForm::kMessy;
    CheckBackward(c);
  }
}

// Every token adds to the same keys, in the order of the tokens.
TEST(SparseBackward, ManyTokensOfFewKeys) {
  for (const DType dtype : kTokenDTypes) {
    SparseCase c{.heads = 16, .d = 32, .dv = 32, .merged = true};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{60, 30}, {9, 70}};
    c.tokens.causal = false;
    c.tokens.slots = 9;
    CheckBackward(c);
  }
}

TEST(SparseBackward, SequencesWithoutQueriesOrKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const reference::Lengths& lengths :
         {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{0, 0, 4}, {0, 3, 6}}, {{8}, {3}}}) {
      SparseCase c;
      c.tokens.layout = layout;
      c.tokens.lengths = lengths;
      CheckBackward(c);
      c.tokens.spare_q = c.tokens.spare_k = 2;
      CheckBackward(c);
    }
  }
}

TEST(SparseBackward, LengthsThatAreNotGiven) {
  SparseCase c;
  c.tokens.lengths = {{5, 5}, {30, 30}};
  c.tokens.lengths_given = false;
  CheckBackward(c);
}

TEST(SparseBackward, StridesAndPlacesOfTensors) {
  for (const DType dtype : kTokenDTypes) {
    for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
      SparseCase c{.heads = 3, .d = 20, .d_rope = 6, .dv = 12};
      c.tokens.dtype = dtype;
      c.tokens.layout = layout;
      c.tokens.lengths = {{3, 4}, {40, 20}};
      c.tokens.index_dtype = DType::kI64;
      c.tokens.padding = {.inner = 3, .middle = 5, .outer = 7};
      CheckBackward(c);
      c.tokens.padding = {};
      for (const Place place : {Place::kAtEnd, Place::kAtStart}) {
        c.tokens.placement = {.place = place};
        CheckBackward(c);
      }
      c.tokens.placement = {.misalignment = 1};
      CheckBackward(c);
    }
  }
}

TEST(SparseBackward, UncheckedInvalidEntriesAreSkipped) {
  SparseCase c;
  c.check_indices = false;
  c.tokens.lists = ListForm::kMessy;
  c.tokens.placement.place = Place::kAtEnd;
  reference::SparseProblem values = MakeReferenceProblem(c);
  constexpr int64_t kInvalid[] = {-2, 0x7FFFFFFF, -0x7FFFFFFF - 1, 41, 1000};
  for (size_t x = 0; x < values.selection.indices.size(); x += 3) {
    values.selection.indices[x] = kInvalid[x / 3 % std::size(kInvalid)];
  }
  EXPECT_TRUE(BackwardIsTheReference(SparseGradCall(c, std::move(values))));
}

// Keys that no list names get gradients of exactly 0, whatever the keys hold.
TEST(SparseBackward, KeysThatNobodySelectsAreNeverRead) {
  const auto check = [&](bool merged) {
    SparseCase c{.heads = 17, .d = 24, .d_rope = 8, .dv = 24, .merged = merged};
    c.tokens.lengths = {{4}, {200}};
    reference::SparseProblem values = MakeReferenceProblem(c);
    std::vector<bool> selected(200);
    for (int64_t t = 0; t < 4; ++t) {
      for (const reference::SelectedKey& at : values.selection.KeysOf(0, t)) selected[at.key] = true;
    }
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t key = 0; key < 200; ++key) {
      if (selected[key]) continue;
      std::fill_n(&values.k[key * c.d], c.d, kNan);
      std::fill_n(&values.k_rope[key * c.d_rope], c.d_rope, kNan);
      if (!merged) std::fill_n(&values.v[key * c.dv], c.dv, kNan);
    }
    const SparseGradCall call(c, std::move(values));
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const std::vector<double> dk = ValuesOf(call.Outputs(), "dk");
      for (int64_t key = 0; key < 200; ++key) {
        for (int64_t x = key * c.d; x < (key + 1) * c.d; ++x) {
          ASSERT_TRUE(selected[key] ? std::isfinite(dk[x]) : dk[x] == 0) << IsaName(isa) << " " << key << " " << dk[x];
        }
      }
      for (const double value : ValuesOf(call.Outputs(), "dq")) ASSERT_TRUE(std::isfinite(value));
    }
  };
  ForEachCase(check, Axis{"merged", {false, true}});
}

TEST(SparseBackward, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    SparseCase c = RandomSparseCase(static_cast<uint64_t>(seed));
    c.rows.reset();
    c.tokens.page_rows = 0;
    ASSERT_TRUE(BackwardIsTheReference(c, 1 + seed % 3));
  }
}

}  // namespace
}  // namespace fa::test
