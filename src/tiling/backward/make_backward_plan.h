#ifndef FA_TILING_MAKE_BACKWARD_PLAN_H_
#define FA_TILING_MAKE_BACKWARD_PLAN_H_

#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Returns, for every task, the worker that runs it in the simulation that gave plan.efficiency. All workers claim from
/// one list, so the worker of a real run is unknown.
[[nodiscard]] std::vector<int> PredictedWorkers(const BackwardPlan& plan);

/// Makes the plan of the dense backward. @throws PlanTooLarge, std::bad_alloc
[[nodiscard]] BackwardPlan MakeBackwardPlan(const AttentionProblem& problem, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_BACKWARD_PLAN_H_
