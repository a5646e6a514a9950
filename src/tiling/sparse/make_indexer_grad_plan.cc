#include "tiling/sparse/make_indexer_grad_plan.h"

#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

// The number of keys of a block. With 64 heads of 128, the rows and scores of a block take 100 KB of L2. A dense loss
// takes 130 KB, which includes the probabilities of 32 tokens. A loss over attention with 128 heads of 576 columns
// takes 500 KB.
constexpr int64_t kBlockKeys = 128;

/// Returns the flops of a (token, key) pair: for the indexer's scores, dq and dk, and for the attention's scores.
double FlopsOfPair(const IndexerGradProblem& problem) {
  const int64_t attention = (problem.walks_twice ? 2 : 1) * problem.attention_width;
  return 2 * static_cast<double>(3 * problem.heads * problem.d + attention);
}

/// Begins a plan with one task per token.
IndexerGradPlan Begin(const char* op, const char* reason, const IndexerGradProblem& problem, int workers) {
  const double flops = FlopsOfPair(problem) * problem.sequences.SelectableKeys(problem.entries, /*block_size=*/1);
  CheckWork(flops, workers);
  return {.op = op,
          .block_k = kBlockKeys,
          .groups = {},
          .units = problem.sequences.tokens,
          .flops = flops,
          .reason = reason};
}

}  // namespace

IndexerGradPlan MakeIndexerGradPlan(const IndexerGradProblem& problem, int workers) {
  return Begin("indexer backward", "gathered rows and their scores stay in L2 for three products", problem, workers);
}

IndexerGradPlan MakeSparseLossPlan(const IndexerGradProblem& problem, int workers) {
  return Begin("sparse KL loss",
               problem.attention_width == 0 ? "probabilities given; products of the indexer are kept for the gradients"
                                            : "products of the indexer are kept for the gradients",
               problem, workers);
}

IndexerGradPlan MakeDenseLossPlan(const IndexerGradProblem& problem, int64_t lanes, int workers) {
  IndexerGradPlan plan = Begin(
      "dense KL loss",
      problem.walks_twice ? "a first walk sums the target's rows" : "a block's probabilities and products stay in L2",
      problem, workers);
  plan.tokens_per_task = lanes;
  plan.groups = MakeTokenGroups(problem.sequences, lanes);
  plan.units = std::ssize(plan.groups);
  return plan;
}

}  // namespace fa::tiling
