#ifndef FA_TILING_INDEXER_GRAD_FACTS_H_
#define FA_TILING_INDEXER_GRAD_FACTS_H_

#include <string>
#include <vector>

#include "tiling/plan_facts.h"
#include "tiling/problem.h"
#include "tiling/sparse/indexer_grad_plan.h"
#include "tiling/sparse/key_sum_plan.h"

namespace fa::tiling {

/// Returns the PlanFacts of the indexer's gradients. They refer to `plan` and to what `problem` refers to.
/// @param sums  tasks that clear and write the sums to which the plan's tasks add
[[nodiscard]] PlanFacts FactsOf(const IndexerGradProblem& problem, const Machine& machine, const IndexerGradPlan& plan,
                                const KeySumPlan& sums, std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_GRAD_FACTS_H_
