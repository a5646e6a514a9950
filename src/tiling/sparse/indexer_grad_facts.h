#ifndef FA_TILING_INDEXER_GRAD_FACTS_H_
#define FA_TILING_INDEXER_GRAD_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "tiling/plan_facts.h"
#include "tiling/sparse/key_sum_plan.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// How gradients of the indexer are computed: tasks of tokens that add to sums of keys.
struct IndexerGradPlan {
  const char* op;
  DType dtype;
  int64_t heads, d;  ///< of the indexer
  const SparseSequences& sequences;
  const KeySumPlan& sums;
  int64_t tokens_per_task;
  int64_t block_k;
  int64_t entries;        ///< largest number of keys per token
  double flops_per_pair;  ///< of a token and a key
  std::string reason;
};

/// The description of such a plan; refers to what the plan refers to.
[[nodiscard]] PlanFacts FactsOf(const IndexerGradPlan& plan, const Machine& machine, std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_GRAD_FACTS_H_
