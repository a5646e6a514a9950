#ifndef FA_TILING_BACKWARD_FACTS_H_
#define FA_TILING_BACKWARD_FACTS_H_

#include <string>
#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Returns the PlanFacts of a backward. `plan` must outlive the result.
[[nodiscard]] PlanFacts FactsOf(const AttentionProblem& problem, const Machine& machine, const BackwardPlan& plan,
                                std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_FACTS_H_
