#ifndef FA_TILING_MAKE_INDEXER_GRAD_PLAN_H_
#define FA_TILING_MAKE_INDEXER_GRAD_PLAN_H_

#include <cstdint>

#include "tiling/sparse/indexer_grad_plan.h"

namespace fa::tiling {

/// Plans the gradients of the indexer for given gradients of the selected scores.
[[nodiscard]] IndexerGradPlan MakeIndexerGradPlan(const IndexerGradProblem& problem, int workers);
/// Plans the KL loss on selected keys.
[[nodiscard]] IndexerGradPlan MakeSparseLossPlan(const IndexerGradProblem& problem, int workers);
/// Plans the KL loss on every key. @param lanes  tokens along a vector, which form a group
[[nodiscard]] IndexerGradPlan MakeDenseLossPlan(const IndexerGradProblem& problem, int64_t lanes, int workers);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_INDEXER_GRAD_PLAN_H_
