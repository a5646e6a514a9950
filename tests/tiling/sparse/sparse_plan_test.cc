// Tests plans of the sparse operators, which are made from sizes alone.
#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "support/each_case.h"
#include "tiling/sparse/make_indexer_grad_plan.h"
#include "tiling/sparse/make_indexer_plan.h"
#include "tiling/sparse/make_key_sum_plan.h"
#include "tiling/sparse/make_sparse_plan.h"
#include "tiling/sparse/token_groups.h"

namespace fa::tiling {
namespace {

using test::Axis;
using test::ForEachCase;

using CallSizes = std::vector<std::pair<int64_t, int64_t>>;  // (queries, keys) of each sequence

/// Returns sequences of these sizes, one after another.
SparseSequences Sequences(const CallSizes& sizes) {
  SparseSequences sequences;
  for (const auto& [sq, sk] : sizes) {
    sequences.list.push_back({.sq = sq, .sk = sk, .first_token = sequences.tokens});
    sequences.tokens += sq;
    sequences.max_sk = std::max(sequences.max_sk, sk);
  }
  return sequences;
}

const std::vector<CallSizes> kCalls = {
    {}, {{1, 7}}, {{0, 5}, {3, 0}, {40, 700}}, {{9, 300}, {0, 0}, {64, 64}, {1, 5000}}};

TEST(TokenGroups, CoverEachTokenOnce) {
  for (const auto& call : kCalls) {
    const SparseSequences sequences = Sequences(call);
    for (const int64_t tokens : {1, 7, 32}) {
      int64_t covered = 0, number = 0, sequence = -1, first = 0;
      for (const TokenGroup& group : MakeTokenGroups(sequences, tokens)) {
        if (group.sequence != sequence) first = number;
        sequence = group.sequence;
        EXPECT_EQ(group.first_group, first);
        EXPECT_EQ(sequences.list[static_cast<size_t>(sequence)].first_token + group.rows.begin, covered);
        EXPECT_GT(group.rows.size(), 0);
        EXPECT_LE(group.rows.size(), tokens);
        covered += group.rows.size();
        ++number;
      }
      EXPECT_EQ(covered, sequences.tokens);
    }
  }
}

TEST(IndexerGradPlan, CountsTheProductsOfEachPairOfATokenAndAKey) {
  SparseSequences sequences = Sequences({{40, 700}, {9, 300}});
  sequences.mask = SparseMask::kNone;
  const IndexerGradProblem selected{.sequences = sequences, .heads = 4, .d = 32, .entries = 64};
  const double pairs = 49 * 64, products = 3 * 4 * 32;
  EXPECT_EQ(MakeIndexerGradPlan(selected, 2).flops, 2 * products * pairs);
  EXPECT_EQ(MakeIndexerGradPlan(selected, 2).units, 49);
  EXPECT_EQ(MakeSparseLossPlan(selected, 2).flops, 2 * products * pairs);
  IndexerGradProblem loss = selected;
  loss.attention_width = 8 * 80;
  EXPECT_EQ(MakeSparseLossPlan(loss, 2).flops, 2 * (products + 8 * 80) * pairs);
  loss.entries = IndexerGradProblem::kEveryKey;
  loss.walks_twice = true;
  const IndexerGradPlan dense = MakeDenseLossPlan(loss, 16, 2);
  EXPECT_EQ(dense.flops, 2 * (products + 2 * 8 * 80) * (40 * 700 + 9 * 300));
  EXPECT_EQ(dense.units, 4);  // three groups for the 40 tokens and one for the 9, because a group has up to 16 tokens
  EXPECT_EQ(dense.tokens_per_task, 16);
}

TEST(KeySumPlan, CoversEachKeyOnceToClearAndOnceToWrite) {
  for (const auto& call : kCalls) {
    const SparseSequences sequences = Sequences(call);
    for (const int64_t columns : {1, 128, 1 << 20}) {
      const KeySumPlan plan = MakeKeySumPlan(sequences, columns, sequences.tokens, 3);
      int64_t keys = 0;
      for (size_t b = 0; b < sequences.list.size(); ++b) {
        EXPECT_EQ(plan.first_key[b], keys);
        keys += sequences.list[b].sk;
      }
      EXPECT_EQ(plan.first_key.back(), keys);
      EXPECT_GE(plan.key_tasks * plan.keys_per_task, keys);
      EXPECT_LT((plan.key_tasks - 1) * plan.keys_per_task, std::max<int64_t>(keys, 1));
      EXPECT_EQ(plan.graph.task_count, sequences.tokens + 2 * plan.key_tasks);
      EXPECT_TRUE(plan.graph.shared_claims);
      EXPECT_FALSE(plan.graph.has_edges());
      EXPECT_EQ(plan.graph.workers(), 3);
    }
  }
}

TEST(SparsePlan, TasksCoverAllTokensAndHeads) {
  const auto check = [](const CallSizes& call, int64_t heads, int workers, bool whole_tokens) {
    const SparseSequences sequences = Sequences(call);
    AttentionProblem attention;
    attention.heads = heads;
    attention.heads_kv = 1;
    attention.d = attention.dv = 64;
    const SparseProblem problem{
        .attention = attention, .sequences = sequences, .entries = 16, .whole_tokens = whole_tokens};
    const SparsePlan plan = MakeSparseForwardPlan(problem, {.workers = workers}, /*in_place=*/false);
    EXPECT_GE(plan.token_tasks * plan.tokens_per_task, sequences.tokens);
    EXPECT_LT((plan.token_tasks - 1) * plan.tokens_per_task, std::max<int64_t>(sequences.tokens, 1));
    EXPECT_GE(plan.head_tasks(heads) * plan.heads_per_task, heads);
    EXPECT_EQ(plan.graph.task_count, plan.token_tasks * plan.head_tasks(heads));
    if (whole_tokens || workers == 1) {
      EXPECT_EQ(plan.head_tasks(heads), 1);
    }
  };
  ForEachCase(check, Axis{"call", kCalls}, Axis{"heads", {1, 20, 128}}, Axis{"workers", {1, 2, 64}},
              Axis{"whole_tokens", {false, true}});
}

TEST(IndexerPlan, ItemsCoverWhatEachTokenMaySelectOnce) {
  const auto check = [](const CallSizes& call, int workers) {
    const SparseSequences sequences = Sequences(call);
    const IndexerPlan plan = MakeIndexerPlan(sequences, 4, 32, 16, {.workers = workers});
    std::vector<int64_t> keys(static_cast<size_t>(sequences.tokens));
    for (const IndexerItem& item : plan.items) {
      EXPECT_EQ(item.keys.begin % 16, 0);
      for (int64_t i = 0; i < item.rows.size(); ++i) {
        int64_t& of_token = keys[static_cast<size_t>(item.first_token + i)];
        EXPECT_EQ(of_token, item.keys.begin);  // the tokens' keys are in order and without gaps
        of_token = item.keys.end;
      }
    }
    for (int64_t token = 0; token < sequences.tokens; ++token) {
      EXPECT_GE(keys[static_cast<size_t>(token)], sequences.Limit(sequences.Token(token)));
    }
    EXPECT_EQ(plan.graph.task_count, std::ssize(plan.items) + (plan.cut ? sequences.tokens : 0));
  };
  ForEachCase(check, Axis{"call", kCalls}, Axis{"workers", {1, 2, 64}});
}

TEST(SparsePlan, FetchesValuesIntoALargeL1WhereKeysAreReadInPlace) {
  AttentionProblem attention;
  attention.heads = 16;
  attention.d = attention.dv = 128;
  const SparseSequences sequences = Sequences({{40, 700}});
  const SparseProblem sparse{.attention = attention, .sequences = sequences};
  Machine machine{.workers = 2};
  const SparseProblem with_values{.attention = attention, .sequences = sequences, .has_v = true};
  for (const auto& [kib, shared, own] : {std::tuple{32, 0, 0}, {48, 8, 32}}) {
    machine.l1_bytes = int64_t{kib} << 10;
    EXPECT_EQ(MakeSparseForwardPlan(sparse, machine, true).values_ahead, shared) << kib;
    EXPECT_EQ(MakeSparseForwardPlan(with_values, machine, true).values_ahead, own) << kib;
    EXPECT_EQ(MakeSparseForwardPlan(sparse, machine, false).values_ahead, 0) << kib;
  }
}

}  // namespace
}  // namespace fa::tiling
