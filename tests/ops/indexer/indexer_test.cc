// Compares the lightning indexer's selection with the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/random_indexer_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr IndexerValues kValues[] = {IndexerValues::kNormal, IndexerValues::kSmallIntegers};

void Check(const IndexerCase& c) { EXPECT_TRUE(ForwardIsTheReference(c)); }

TEST(Indexer, EveryTypeLayoutAndFormOfKeys) {
  const auto check = [&](DType dtype, Layout layout, int64_t page_rows, IndexerValues values) {
    IndexerCase c{.heads = 5, .d = 40, .values = values};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
    c.tokens.spare_q = c.tokens.spare_k = 2;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"page_rows", {0, 7}}, Axis{"values", kValues});
}

TEST(Indexer, TypesOfWeightsAndValues) {
  const auto check = [&](DType dtype, bool f32_weights, bool f32_values) {
    IndexerCase c{.f32_weights = f32_weights, .f32_values = f32_values};
    c.tokens.dtype = dtype;
    Check(c);
    c.wants_values = false;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"f32_weights", {false, true}},
              Axis{"f32_values", {false, true}});
}

TEST(Indexer, EverySizeOfHeads) {
  for (const int64_t d : {1, 16, 33, 64, 128}) {
    for (const int64_t heads : {1, 3, 8, 16, 20, 64}) {
      IndexerCase c{.heads = heads, .d = d, .f32_values = true, .values = kValues[heads % 2]};
      c.tokens.dtype = kTokenDTypes[(d + heads) % 3];
      c.tokens.lengths = {{3}, {70}};
      Check(c);
    }
  }
}

// With a tile unit (AMX), a loop of its own scores these numbers and sizes of heads (docs/kernels.md).
TEST(Indexer, HeadsOfWholeTiles) {
  const auto check = [&](int64_t tokens, int64_t keys, int64_t heads, int64_t d) {
    IndexerCase c{.heads = heads, .d = d, .f32_values = true, .values = kValues[tokens % 2]};
    c.tokens.dtype = DType::kBF16;
    c.tokens.lengths = {{tokens, 3}, {keys, 40}};
    c.tokens.slots = 40;
    c.tokens.placement = {.place = tokens % 2 == 0 ? Place::kAtEnd : Place::kAtStart};
    Check(c);
  };
  ForEachCase(check, Axis{"tokens", {2, 3, 20, 37}}, Axis{"keys", {5, 97, 300}}, Axis{"heads", {32, 96}},
              Axis{"d", {32, 64}});
}

// Tests few and many tokens, numbers of keys around the tiles' sizes, and fewer and more keys than slots.
TEST(Indexer, EveryNumberOfTokensKeysAndEntries) {
  const auto check = [&](int64_t tokens, int64_t keys, int64_t slots) {
    IndexerCase c{.heads = 2, .d = 16, .f32_values = true, .values = kValues[(tokens + slots) % 2]};
    c.tokens.dtype = kTokenDTypes[keys % 3];
    c.tokens.lengths = {{tokens}, {keys}};
    c.tokens.slots = slots;
    Check(c);
  };
  ForEachCase(check, Axis{"tokens", {1, 2, 17, 40}}, Axis{"keys", {1, 31, 32, 33, 128, 257, 700}},
              Axis{"slots", {1, 32, 100, 300}});
}

TEST(Indexer, BothMasksWithMoreQueriesThanKeys) {
  for (const bool causal : {false, true}) {
    for (const IndexerValues values : kValues) {
      IndexerCase c{.values = values};
      c.tokens.lengths = {{9, 2}, {4, 30}};
      c.tokens.causal = causal;
      Check(c);
    }
  }
}

TEST(Indexer, SequencesWithoutQueriesOrKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const reference::Lengths& lengths :
         {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{0, 0, 4}, {0, 3, 6}}}) {
      IndexerCase c;
      c.tokens.layout = layout;
      c.tokens.lengths = lengths;
      Check(c);
      c.tokens.spare_q = c.tokens.spare_k = 2;
      Check(c);
    }
  }
}

TEST(Indexer, LengthsThatAreNotGiven) {
  IndexerCase c;
  c.tokens.lengths = {{5, 5}, {30, 30}};
  c.tokens.lengths_given = false;
  Check(c);
}

TEST(Indexer, StridesAndPlacesOfTensors) {
  const auto check = [&](DType dtype, Layout layout, int64_t page_rows) {
    IndexerCase c{.heads = 3, .d = 20};
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.lengths = {{3, 40}, {45, 20}};
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

TEST(Indexer, PagesOfEverySize) {
  for (const int64_t page_rows : {1, 2, 7, 16, 33, 64, 128, 500}) {
    for (const int64_t tokens : {1, 20}) {
      IndexerCase c{.d = 24, .values = kValues[page_rows % 2]};
      c.tokens.dtype = kTokenDTypes[page_rows % 3];
      c.tokens.page_rows = page_rows;
      c.tokens.lengths = {{tokens, 3, 1}, {130, 0, 33}};
      c.tokens.slots = 24;
      Check(c);
    }
  }
}

/// Returns a call with one head, D = 1 and q = 1. A key's score is `weight` times its value, or 0 if the value is
/// negative.
IndexerCall ScoresOf(const std::vector<double>& scores, int64_t slots, double weight = 1) {
  IndexerCase c{.heads = 1, .d = 1};
  c.tokens.lengths = {{1}, {std::ssize(scores)}};
  c.tokens.slots = slots;
  reference::IndexerProblem values = MakeReferenceProblem(c);
  values.q = {1};
  values.k = scores;
  values.weights = {weight};
  return IndexerCall(c, std::move(values));
}

/// Expects these indices on every level.
void ExpectIndices(const IndexerCall& call, const std::vector<double>& want) {
  for (const Isa isa : IsaLevels()) {
    const Status status = call.Run(ContextOf(isa));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(ValuesOf(call.Outputs(), "sparse_indices"), want) << IsaName(isa);
  }
}

TEST(Indexer, EqualScoresStandInAscendingKeys) {
  ExpectIndices(ScoresOf({2, 5, 2, 5, 5, 1, 2}, 5), {1, 3, 4, 0, 2});
  ExpectIndices(ScoresOf({3, 3, 3, 3, 3}, 3), {0, 1, 2});
}

// A negative product gives the score 0, or -0 if the weight is negative. So all these scores are equal.
TEST(Indexer, ZeroAndMinusZeroAreEqual) {
  ExpectIndices(ScoresOf({-1, -2, 0, -3}, 4), {0, 1, 2, 3});
  ExpectIndices(ScoresOf({-1, -2, 0, -3}, 2, -1), {0, 1});
  ExpectIndices(ScoresOf({1, -2, 0.5, -3}, 4, -1), {1, 3, 2, 0});
}

TEST(Indexer, NanComesLastAndInfinityFirst) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ExpectIndices(ScoresOf({1, kNan, kInf, 2, kNan}, 5), {2, 3, 0, 1, 4});
  ExpectIndices(ScoresOf({1, kNan, kInf, 2, kNan}, 3), {2, 3, 0});
  ExpectIndices(ScoresOf({kNan, kNan, kNan}, 2), {0, 1});
  // A score of -inf is a valid score. It comes after every larger score, and before NaN.
  ExpectIndices(ScoresOf({1, kNan, kInf, 2, -1}, 5, -1), {4, 0, 3, 2, 1});
  const IndexerCall call = ScoresOf({1, kNan, 7}, 3);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    const std::vector<double> values = ValuesOf(call.Outputs(), "sparse_values");
    EXPECT_EQ(values[0], 7);
    EXPECT_EQ(values[1], 1);
    EXPECT_TRUE(std::isnan(values[2])) << IsaName(isa);
  }
}

// All scores are equal, and a row has many times more keys than slots. So the selection leaves out keys whose scores
// equal the scores of selected keys.
TEST(Indexer, AllScoresZero) {
  for (const DType dtype : kTokenDTypes) {
    for (const int64_t tokens : {1, 20}) {
      IndexerCase c{.heads = 4, .d = 16};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{tokens}, {500}};
      c.tokens.slots = 100;
      reference::IndexerProblem values = MakeReferenceProblem(c);
      for (double& q : values.q) q = -1;
      for (double& k : values.k) k = 1;
      const IndexerCall call(c, std::move(values));
      std::vector<double> want;
      for (int64_t x = 0; x < tokens * 100; ++x) want.push_back(static_cast<double>(x % 100));
      ExpectIndices(call, want);
    }
  }
}

// Keys beyond the limit or the length hold NaN, and are not read. A non-finite key below the limit affects only the
// rows that see it.
TEST(Indexer, NonFiniteKeysAreSeenBelowTheLimitOnly) {
  // With whole tiles of heads, levels with a tile unit score the keys in a loop of their own.
  IndexerCase few{.heads = 3, .d = 16}, whole_tiles{.heads = 32, .d = 32};
  whole_tiles.tokens.dtype = DType::kBF16;
  for (IndexerCase c : {few, whole_tiles}) {
    c.values = IndexerValues::kSmallIntegers;
    c.tokens.lengths = {{4}, {40}};
    c.tokens.slots = 40;
    const IndexerCall clean(c);
    reference::IndexerProblem values = MakeReferenceProblem(c);
    values.k[38 * c.d + 5] = std::numeric_limits<double>::quiet_NaN();
    const IndexerCall call(c, std::move(values));
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(clean.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const std::vector<double> want = ValuesOf(clean.Outputs(), "sparse_indices");
      const std::vector<double> got = ValuesOf(call.Outputs(), "sparse_indices");
      // Rows have limits 37 to 40. So the last two rows see key 38, whose score is NaN, and put it last.
      for (int64_t x = 0; x < 2 * 40; ++x) ASSERT_EQ(got[x], want[x]) << IsaName(isa) << " " << x;
      EXPECT_EQ(got[2 * 40 + 38], 38) << IsaName(isa);
      EXPECT_EQ(got[3 * 40 + 39], 38) << IsaName(isa);
    }
  }
}

// Infinity and NaN in the weight of one head, in a loop over whole tiles of heads and in the other kernels. A weight of
// inf times a product that ReLU made 0 is NaN.
TEST(Indexer, WeightsThatAreNotFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const auto check = [&](int64_t tokens, int64_t heads, double weight) {
    IndexerCase c{.heads = heads, .d = 32, .f32_weights = true, .f32_values = true};
    c.tokens.dtype = DType::kBF16;
    c.tokens.lengths = {{tokens}, {6}};
    c.tokens.slots = 6;
    c.tokens.causal = false;
    reference::IndexerProblem values = MakeReferenceProblem(c);
    for (double& q : values.q) q = 1;
    for (double& w : values.weights) w = 1;
    // Only token 1 has the weight. The keys' products are 32 times 1, -1, 0, 2, -3 and 4.
    values.weights[static_cast<size_t>(2 * heads - 1)] = weight;
    constexpr double kKeys[] = {1, -1, 0, 2, -3, 4};
    for (int64_t key = 0; key < 6; ++key) std::fill_n(values.k.begin() + key * c.d, c.d, kKeys[key]);
    const IndexerCall call(c, std::move(values));
    const double all = 32.0 * static_cast<double>(heads);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      const std::vector<double> got = ValuesOf(call.Outputs(), "sparse_values");
      for (int64_t token = 0; token < tokens; ++token) {
        const auto value = [&](int64_t slot) { return got[static_cast<size_t>(token * 6 + slot)]; };
        if (token != 1) {
          for (const int64_t slot : {0, 1, 2}) ASSERT_EQ(value(slot), all * (slot == 0 ? 4 : slot == 1 ? 2 : 1));
          for (const int64_t slot : {3, 4, 5}) ASSERT_EQ(value(slot), 0) << IsaName(isa);
          continue;
        }
        for (const int64_t slot : {0, 1, 2}) {
          ASSERT_TRUE(weight > 0 ? value(slot) == kInf : std::isnan(value(slot))) << IsaName(isa) << " " << slot;
        }
        for (const int64_t slot : {3, 4, 5}) ASSERT_TRUE(std::isnan(value(slot))) << IsaName(isa) << " " << slot;
      }
    }
  };
  ForEachCase(check, Axis{"tokens", {2, 5}}, Axis{"heads", {3, 32}}, Axis{"weight", {kInf, kNan}});
}

TEST(Indexer, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    ASSERT_TRUE(ForwardIsTheReference(RandomIndexerCase(static_cast<uint64_t>(seed), true), 1 + seed % 3));
  }
}

}  // namespace
}  // namespace fa::test
