#ifndef FA_TILING_FORWARD_FACTS_H_
#define FA_TILING_FORWARD_FACTS_H_

#include <string>
#include <vector>

#include "tiling/forward/forward_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Returns the PlanFacts of a forward. `plan` must outlive the result.
[[nodiscard]] PlanFacts FactsOf(const char* op, const AttentionProblem& problem, const Machine& machine,
                                const ForwardPlan& plan, std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_FORWARD_FACTS_H_
