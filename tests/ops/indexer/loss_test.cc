// Compares the KL losses with the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/indexer/loss_case.h"
#include "ops/indexer/random_indexer_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

void Check(const LossCase& c) { EXPECT_TRUE(LossIsTheReference(c)); }

LossCase Usual(bool dense) {
  LossCase c{.dense = dense};
  if (dense) {
    c.heads = 6;
    c.heads_kv = 3;
  } else {
    c.tokens.lists = ListForm::kMessy;
    c.tokens.slots = 12;
  }
  c.tokens.lengths = {{5, 0, 7, 3, 2}, {40, 9, 4, 0, 1}};
  return c;
}

class IndexerLoss : public ::testing::TestWithParam<bool> {};

TEST_P(IndexerLoss, EveryTypeAndLayout) {
  const auto check = [&](DType dtype, Layout layout, int64_t d_rope, bool f32_weights) {
    LossCase c = Usual(GetParam());
    c.d_rope = d_rope;
    c.f32_weights = f32_weights;
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.spare_q = c.tokens.spare_k = 2;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"d_rope", {0, 8}},
              Axis{"f32_weights", {false, true}});
}

TEST_P(IndexerLoss, EveryReductionAndTarget) {
  const auto check = [&](DType dtype, bool l1, bool mean, bool foreign) {
    LossCase c = Usual(GetParam());
    c.l1 = l1;
    c.mean = mean;
    c.foreign_statistics = foreign;
    c.tokens.dtype = dtype;
    Check(c);
    if (GetParam()) return;
    c.sink = true;
    Check(c);
    c.sink = false;
    c.head_mean = true;
    Check(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"l1", {false, true}}, Axis{"mean", {false, true}},
              Axis{"foreign", {false, true}});
}

TEST_P(IndexerLoss, ItsBoundIsAHundredRoundingsAtMost) {
  for (const DType dtype : kTokenDTypes) {
    LossCase c = Usual(GetParam());
    c.tokens.dtype = dtype;
    const ExpectedOutput loss = ExpectLoss(LossCall(c)).back();
    ASSERT_EQ(loss.name, "loss");
    EXPECT_LE(loss.allowed[0], 100 * 0x1p-24 * std::max(std::fabs(loss.want[0]), 1.0)) << Name(dtype);
  }
}

TEST_P(IndexerLoss, EverySizeOfHeads) {
  for (const int64_t d : {1, 33, 128, 512}) {
    for (const int64_t heads : {1, 3, 16, 32}) {
      LossCase c{.dense = GetParam(), .heads = heads, .d = d, .d_rope = d == 512 ? 64 : 0};
      c.heads_kv = GetParam() && heads % 2 == 0 ? heads / 2 : 1;
      c.heads_index = 1 + heads % 20;
      c.d_index = d == 512 ? 128 : d;
      c.tokens.dtype = kTokenDTypes[(d + heads) % 3];
      c.tokens.lengths = {{3}, {40}};
      c.tokens.slots = 30;
      Check(c);
    }
  }
}

TEST_P(IndexerLoss, RowsOfEveryLength) {
  for (const int64_t keys : {1, 2, 31, 32, 33, 64, 129, 256, 300, 600}) {
    LossCase c{.dense = GetParam(), .heads = 2};
    c.tokens.dtype = kTokenDTypes[keys % 3];
    c.tokens.lengths = {{3}, {keys + 2}};
    c.tokens.slots = keys;
    Check(c);
  }
}

TEST_P(IndexerLoss, BothMasksWithMoreQueriesThanKeys) {
  for (const bool causal : {false, true}) {
    LossCase c{.dense = GetParam()};
    c.tokens.lengths = {{9, 2}, {4, 30}};
    c.tokens.causal = causal;
    Check(c);
  }
}

TEST_P(IndexerLoss, SequencesWithoutQueriesOrKeys) {
  const auto check = [&](Layout layout, const reference::Lengths& lengths, bool mean) {
    LossCase c{.dense = GetParam(), .mean = mean};
    c.tokens.layout = layout;
    c.tokens.lengths = lengths;
    Check(c);
    c.tokens.spare_q = c.tokens.spare_k = 2;
    Check(c);
  };
  ForEachCase(check, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"lengths", {reference::Lengths{{0}, {5}}, {{5}, {0}}, {{0, 0}, {0, 0}}, {{0, 0, 4}, {0, 3, 6}}}},
              Axis{"mean", {false, true}});
}

TEST_P(IndexerLoss, ManyTokensOfFewKeys) {
  for (const DType dtype : kTokenDTypes) {
    LossCase c{.dense = GetParam(), .heads = 2};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{60, 30}, {9, 70}};
    c.tokens.causal = false;
    c.tokens.slots = 9;
    Check(c);
  }
}

TEST_P(IndexerLoss, StridesAndPlacesOfTensors) {
  for (const DType dtype : kTokenDTypes) {
    for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
      LossCase c = Usual(GetParam());
      c.d_rope = 6;
      c.tokens.dtype = dtype;
      c.tokens.layout = layout;
      c.tokens.lengths = {{3, 4}, {40, 20}};
      c.tokens.index_dtype = DType::kI64;
      c.tokens.padding = {.inner = 3, .middle = 5, .outer = 7};
      Check(c);
      c.tokens.padding = {};
      for (const Place place : {Place::kAtEnd, Place::kAtStart}) {
        c.tokens.placement = {.place = place};
        Check(c);
      }
      c.tokens.placement = {.misalignment = 1};
      Check(c);
    }
  }
}

TEST_P(IndexerLoss, RandomCases) {
  for (int seed = 0; seed < RandomCases() / 5; ++seed) {
    ASSERT_TRUE(LossIsTheReference(RandomLossCase(static_cast<uint64_t>(seed), GetParam()), 1 + seed % 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Kind, IndexerLoss, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Dense" : "Sparse"; });

TEST(SparseIndexerLoss, UncheckedInvalidEntriesAreSkipped) {
  LossCase c = Usual(false);
  c.check_indices = false;
  c.tokens.lengths = {{5}, {40}};
  c.tokens.placement.place = Place::kAtEnd;
  reference::LossProblem values = MakeReferenceProblem(c);
  constexpr int64_t kInvalid[] = {-2, 0x7FFFFFFF, -0x7FFFFFFF - 1, 41, 1000};
  std::vector<int64_t>& indices = values.attention.selection.indices;
  for (size_t x = 0; x < indices.size(); x += 3) indices[x] = kInvalid[x / 3 % std::size(kInvalid)];
  EXPECT_TRUE(LossIsTheReference(LossCall(c, std::move(values))));
}

// A row whose sinks have all the weight has no target, whatever its list holds.
TEST(SparseIndexerLoss, RowsOfSinksAloneHaveNoLossAndNoGradients) {
  for (const bool l1 : {false, true}) {
    LossCase c = Usual(false);
    c.sink = true;
    c.l1 = l1;
    reference::LossProblem values = MakeReferenceProblem(c), without_keys = values;
    constexpr int64_t kToken = 2;
    for (int64_t n = 0; n < c.heads; ++n) values.max[kToken * c.heads + n] = values.attention.sink[n];
    std::fill_n(values.sum.begin() + kToken * c.heads, c.heads, 1.0);
    std::fill_n(without_keys.attention.selection.indices.begin() + kToken * c.tokens.slots, c.tokens.slots, -1);
    const LossCall call(c, std::move(values)), want(c, std::move(without_keys));
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(want.Run(ContextOf(isa)).ok());
      EXPECT_TRUE(SameBits(call.Outputs(), want.Outputs())) << IsaName(isa) << " " << c;
    }
  }
}

// If p_head_mean is given, the attention's tensors are not read. They may be absent or hold anything.
TEST(SparseIndexerLoss, TheHeadMeanReplacesTheAttention) {
  LossCase c = Usual(false);
  c.head_mean = true;
  const LossCall call(c);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    const TokenOutputs want = call.Outputs();
    reference::LossProblem values = MakeReferenceProblem(c);
    for (auto* poisoned : {&values.attention.q, &values.attention.k, &values.max, &values.sum}) {
      for (double& value : *poisoned) value = std::numeric_limits<double>::quiet_NaN();
    }
    const LossCall other(c, std::move(values));
    ASSERT_TRUE(other.Run(ContextOf(isa)).ok());
    EXPECT_TRUE(SameBits(other.Outputs(), want)) << IsaName(isa);
  }
}

TEST(SparseIndexerLoss, TheHeadMeanLeavesTheAttentionsDescriptionsUnread) {
  LossCase c = Usual(false);
  c.head_mean = true;
  const LossCall call(c);
  ASSERT_TRUE(call.Run(ContextOf(IsaLevels().front())).ok());
  const TokenOutputs want = call.Outputs();
  SparseIndexerLossArgs args = call.sparse_args();
  args.q.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  args.k.shape = {int64_t{1} << 62, int64_t{1} << 62, 1, 1};
  args.q_rope = args.k_rope = args.k;
  args.softmax_max.data = args.dq_index.data;
  ASSERT_TRUE(SparseLightningIndexerGradKLLoss(args, call.options(), ContextOf(IsaLevels().front())).ok());
  EXPECT_TRUE(SameBits(call.Outputs(), want));
}

}  // namespace
}  // namespace fa::test
