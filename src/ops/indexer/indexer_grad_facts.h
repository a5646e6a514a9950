#ifndef FA_OPS_INDEXER_GRAD_FACTS_H_
#define FA_OPS_INDEXER_GRAD_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/plan.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/token/key_sum_tasks.h"
#include "tiling/problem.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The description of a plan of gradients of the indexer.
struct IndexerGradFacts {
  const char* op;
  const IndexerShape& shape;
  const KeySumTasks& tasks;
  const tiling::Machine& machine;
  const tiling::WorkspacePlan& workspace;
  int64_t tokens_per_task;
  int64_t block_k;
  int64_t entries;        ///< keys of a token at most
  double flops_per_pair;  ///< of a token and a key
  std::vector<std::string> kernels;
  std::string reason;
};

[[nodiscard]] PlanInfo InfoOf(const IndexerGradFacts& facts);
/// The plan in words.
[[nodiscard]] std::string Describe(const IndexerGradFacts& facts);

}  // namespace fa::ops

#endif  // FA_OPS_INDEXER_GRAD_FACTS_H_
