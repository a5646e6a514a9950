// Tests sparse attention, the indexer and its losses at absurd sizes. In each call one of B, S1, S2, N, D and K is
// absurd, or all of them are.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "ops/limits/claimed_tensors.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

struct Sizes {
  int64_t b = 1, s1 = 4, s2 = 16, n = 2, d = 16, k = 4;
};

std::string Text(const Sizes& s) {
  std::string text;
  for (const int64_t size : {s.b, s.s1, s.s2, s.n, s.d, s.k}) text += " " + std::to_string(size);
  return text;
}

std::vector<Sizes> AbsurdCases() {
  std::vector<Sizes> cases;
  for (const int64_t size : AbsurdSizes()) {
    for (const int64_t tokens : {0, 1, 4}) {
      cases.push_back({.b = size, .s1 = tokens});
      cases.push_back({.b = size, .s1 = tokens, .s2 = 0});
    }
    cases.push_back({.s1 = size});
    cases.push_back({.s2 = size});
    cases.push_back({.s1 = 0, .s2 = size});
    cases.push_back({.n = size});
    cases.push_back({.s1 = 0, .n = size});
    cases.push_back({.d = size});
    cases.push_back({.k = size});
    cases.push_back({.b = size, .s1 = size, .s2 = size, .n = size, .d = 16, .k = size});
  }
  cases.push_back({.s1 = 1, .s2 = Power(31) - 1});
  cases.push_back({.b = Power(10), .s1 = 1, .s2 = Power(31) - 1});  // these are 2^41 keys
  cases.push_back({.b = Power(20), .s1 = 1, .s2 = Power(31) - 1});
  return cases;
}

// Query returns the shape of a query tensor in BSND, and Key returns the shape of a key tensor.
Dims Query(const Sizes& s, int64_t heads, int64_t columns) { return {s.b, s.s1, heads, columns}; }
Dims Key(const Sizes& s, int64_t columns) { return {s.b, s.s2, 1, columns}; }

template <typename Make>
void ExpectAllRefusedOrSmall(const Make& make) {
  const HangAlarm alarm;
  for (const Sizes& sizes : AbsurdCases()) {
    const auto plan = make(sizes);
    if (!plan.ok()) {
      ExpectRefused(plan.status(), Text(sizes));
    } else {
      EXPECT_LT(plan->workspace_bytes(), size_t{1} << 47) << Text(sizes);
    }
  }
}

TEST(SparseLimits, SparseForward) {
  for (const int64_t block_size : {1, 64}) {
    ExpectAllRefusedOrSmall([&](const Sizes& s) {
      SparseAttentionArgs args;
      args.q = Claim(Query(s, s.n, s.d));
      args.k = args.v = Claim(Key(s, s.d));
      args.sparse_indices = Claim(Query(s, 1, s.k), DType::kI32);
      args.out = ClaimOutput(Query(s, s.n, s.d));
      return PlanSparseFlashAttention(args, {.block_size = block_size});
    });
  }
}

TEST(SparseLimits, SparseForwardOfPages) {
  const HangAlarm alarm;
  const std::vector<int64_t> lengths{16};
  for (const int64_t size : AbsurdSizes()) {
    for (const Dims& pages : {Dims{size, 16, 1, 16}, {4, size, 1, 16}}) {
      for (const Dims& table : {Dims{1, 4}, {1, size}}) {
        SparseAttentionArgs args;
        args.q = Claim({1, 4, 2, 16});
        args.k = args.v = Claim(pages);
        args.sparse_indices = Claim({1, 4, 1, 4}, DType::kI32);
        args.block_table = Claim(table, DType::kI32);
        args.lengths_kv = lengths;
        args.out = ClaimOutput({1, 4, 2, 16});
        ExpectRefusedOrSmall(PlanSparseFlashAttention(args, {}), "pages " + std::to_string(size));
      }
    }
  }
}

TEST(SparseLimits, SparseBackward) {
  ExpectAllRefusedOrSmall([](const Sizes& s) {
    SparseAttentionGradArgs args;
    args.q = args.out = args.d_out = Claim(Query(s, s.n, s.d));
    args.k = args.v = Claim(Key(s, s.d));
    args.sparse_indices = Claim(Query(s, 1, s.k), DType::kI32);
    args.softmax_max = args.softmax_sum = Claim({s.b, 1, s.s1, s.n});
    args.dq = ClaimOutput(args.q.shape);
    args.dk = args.dv = ClaimOutput(args.k.shape);
    return PlanSparseFlashAttentionGrad(args, {});
  });
}

TEST(SparseLimits, Indexer) {
  ExpectAllRefusedOrSmall([](const Sizes& s) {
    LightningIndexerArgs args;
    args.q = Claim(Query(s, s.n, s.d));
    args.k = Claim(Key(s, s.d));
    args.weights = Claim({s.b, s.s1, s.n});
    args.sparse_indices = ClaimOutput(Query(s, 1, s.k), DType::kI32);
    args.sparse_values = ClaimOutput(Query(s, 1, s.k));
    return PlanLightningIndexer(args, {});
  });
}

TEST(SparseLimits, IndexerBackward) {
  ExpectAllRefusedOrSmall([](const Sizes& s) {
    LightningIndexerGradArgs args;
    args.q = Claim(Query(s, s.n, s.d));
    args.k = Claim(Key(s, s.d));
    args.weights = Claim({s.b, s.s1, s.n});
    args.sparse_indices = Claim(Query(s, 1, s.k), DType::kI32);
    args.d_values = Claim(Query(s, 1, s.k));
    args.dq = ClaimOutput(args.q.shape);
    args.dk = ClaimOutput(args.k.shape);
    args.dweights = ClaimOutput(args.weights.shape);
    return PlanLightningIndexerGrad(args, {});
  });
}

TEST(SparseLimits, IndexerLse) {
  ExpectAllRefusedOrSmall([](const Sizes& s) {
    DenseIndexerLseArgs args;
    args.q_index = Claim(Query(s, s.n, s.d));
    args.k_index = Claim(Key(s, s.d));
    args.weights = Claim({s.b, s.s1, s.n});
    args.softmax_max_index = args.softmax_sum_index = ClaimOutput({s.b, 1, s.s1});
    return PlanDenseLightningIndexerSoftmaxLse(args, {});
  });
}

template <typename Args>
Args LossArgs(const Sizes& s) {
  Args args;
  args.q = args.q_index = Claim(Query(s, s.n, s.d));
  args.k = args.k_index = Claim(Key(s, s.d));
  args.weights = Claim({s.b, s.s1, s.n});
  args.softmax_max = args.softmax_sum = Claim({s.b, 1, s.s1, s.n});
  args.dq_index = ClaimOutput(args.q.shape);
  args.dk_index = ClaimOutput(args.k.shape);
  args.dweights = ClaimOutput(args.weights.shape);
  args.loss = ClaimOutput({1});
  return args;
}

TEST(SparseLimits, SparseLoss) {
  for (const bool mean_given : {false, true}) {
    ExpectAllRefusedOrSmall([&](const Sizes& s) {
      auto args = LossArgs<SparseIndexerLossArgs>(s);
      args.sparse_indices = Claim(Query(s, 1, s.k), DType::kI32);
      if (mean_given) args.p_head_mean = Claim({s.b, s.s1, s.k});
      return PlanSparseLightningIndexerGradKLLoss(args, {});
    });
  }
}

TEST(SparseLimits, DenseLoss) {
  ExpectAllRefusedOrSmall([](const Sizes& s) {
    auto args = LossArgs<DenseIndexerLossArgs>(s);
    args.softmax_max_index = args.softmax_sum_index = Claim({s.b, 1, s.s1});
    return PlanDenseLightningIndexerGradKLLoss(args, {});
  });
}

}  // namespace
}  // namespace fa::test
