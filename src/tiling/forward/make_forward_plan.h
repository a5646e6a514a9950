#ifndef FA_TILING_MAKE_FORWARD_PLAN_H_
#define FA_TILING_MAKE_FORWARD_PLAN_H_

#include "tiling/forward/forward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Makes the plan of the dense forward. @throws PlanTooLarge, std::bad_alloc
[[nodiscard]] ForwardPlan MakeForwardPlan(const AttentionProblem& problem, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_FORWARD_PLAN_H_
