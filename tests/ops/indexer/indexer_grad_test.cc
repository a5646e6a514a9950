// Compares the indexer's backward with the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/random_indexer_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr IndexerValues kGradValues[] = {IndexerValues::kNormal, IndexerValues::kSmallIntegers};

void CheckBackward(const IndexerCase& c) { EXPECT_TRUE(BackwardIsTheReference(c)); }

TEST(IndexerGrad, EveryTypeAndLayout) {
  const auto check = [&](DType dtype, Layout layout, ListForm lists, IndexerValues values) {
    IndexerCase c{.heads = 5, .d = 40, .values = values};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.lists = lists;
    c.tokens.slots = 12;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"lists", {ListForm::kDistinct, ListForm::kMessy}}, Axis{"values", kGradValues});
}

TEST(IndexerGrad, TypesOfWeightsValuesAndLists) {
  const auto check = [&](DType dtype, bool f32_weights, bool f32_values) {
    IndexerCase c{.f32_weights = f32_weights, .f32_values = f32_values, .flat_d_values = f32_weights};
    c.tokens.dtype = dtype;
    c.tokens.index_dtype = f32_values ? DType::kI64 : DType::kI32;
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"f32_weights", {false, true}},
              Axis{"f32_values", {false, true}});
}

TEST(IndexerGrad, EverySizeOfHeads) {
  for (const int64_t d : {1, 16, 33, 64, 128}) {
    for (const int64_t heads : {1, 3, 8, 16, 20, 64}) {
      IndexerCase c{.heads = heads, .d = d, .values = kGradValues[heads % 2]};
      c.tokens.dtype = kTokenDTypes[(d + heads) % 3];
      c.tokens.lengths = {{3}, {40}};
      c.tokens.slots = 35;
      CheckBackward(c);
    }
  }
}

TEST(IndexerGrad, ListsOfEveryLength) {
  for (const int64_t slots : {1, 2, 31, 33, 64, 65, 127, 129, 256, 300, 700}) {
    IndexerCase c{.heads = 5, .d = 32, .values = kGradValues[slots % 2]};
    c.tokens.dtype = kTokenDTypes[slots % 3];
    c.tokens.lengths = {{3}, {600}};
    c.tokens.slots = slots;
    c.tokens.lists = slots % 2 == 0 ? ListForm::kDistinct : ListForm::kMessy;
    CheckBackward(c);
  }
}

// A product of exactly 0 gets no gradient. Here half of the products are 0, and the others are 1.
TEST(IndexerGrad, ProductsOfZeroGiveNothing) {
  for (const DType dtype : kTokenDTypes) {
    IndexerCase c{.heads = 17, .d = 8, .values = IndexerValues::kSmallIntegers};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{2}, {30}};
    c.tokens.slots = 30;
    reference::IndexerProblem values = MakeReferenceProblem(c);
    for (size_t x = 0; x < values.q.size(); ++x) values.q[x] = x % 8 < 2 ? 1 : 0;
    for (size_t x = 0; x < values.k.size(); ++x) {
      const size_t key = x / 8;
      values.k[x] = x % 8 == 0 ? 1 : x % 8 == 1 ? (key % 2 == 0 ? -1 : 0) : 2;
    }
    EXPECT_TRUE(BackwardIsTheReference(IndexerGradCall(c, std::move(values))));
  }
}

TEST(IndexerGrad, SequencesWithoutQueriesOrKeys) {
  const auto check = [&](Layout layout, const reference::Lengths& lengths, bool causal) {
    IndexerCase c;
    c.tokens.layout = layout;
    c.tokens.lengths = lengths;
    c.tokens.causal = causal;
    CheckBackward(c);
    c.tokens.spare_q = c.tokens.spare_k = 2;
    CheckBackward(c);
  };
  ForEachCase(
      check, Axis{"layout", {Layout::kBSND, Layout::kTND}},
      Axis{"lengths", {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{0, 0, 4}, {0, 3, 6}}, {{9}, {4}}}},
      Axis{"causal", {false, true}});
}

TEST(IndexerGrad, ManyTokensOfFewKeys) {
  for (const DType dtype : kTokenDTypes) {
    IndexerCase c{.heads = 16, .d = 32};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{60, 30}, {9, 70}};
    c.tokens.causal = false;
    c.tokens.slots = 9;
    CheckBackward(c);
  }
}

TEST(IndexerGrad, StridesAndPlacesOfTensors) {
  const auto check = [&](DType dtype, Layout layout, bool flat) {
    IndexerCase c{.heads = 3, .d = 20, .flat_d_values = flat};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.lengths = {{3, 4}, {40, 20}};
    c.tokens.padding = {.inner = 3, .middle = 5, .outer = 7};
    CheckBackward(c);
    c.tokens.padding = {};
    for (const Place place : {Place::kAtEnd, Place::kAtStart}) {
      c.tokens.placement = {.place = place};
      CheckBackward(c);
    }
    c.tokens.placement = {.misalignment = 1};
    CheckBackward(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"flat", {false, true}});
}

TEST(IndexerGrad, UncheckedInvalidEntriesAreSkipped) {
  IndexerCase c;
  c.check_indices = false;
  c.tokens.lists = ListForm::kMessy;
  c.tokens.placement.place = Place::kAtEnd;
  reference::IndexerProblem values = MakeReferenceProblem(c);
  constexpr int64_t kInvalid[] = {-2, 0x7FFFFFFF, -0x7FFFFFFF - 1, 41, 1000};
  for (size_t x = 0; x < values.selection.indices.size(); x += 3) {
    values.selection.indices[x] = kInvalid[x / 3 % std::size(kInvalid)];
  }
  EXPECT_TRUE(BackwardIsTheReference(IndexerGradCall(c, std::move(values))));
}

TEST(IndexerGrad, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    ASSERT_TRUE(BackwardIsTheReference(RandomIndexerCase(static_cast<uint64_t>(seed), false), 1 + seed % 3));
  }
}

}  // namespace
}  // namespace fa::test
