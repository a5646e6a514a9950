#ifndef FA_TILING_MAKE_BACKWARD_PLAN_H_
#define FA_TILING_MAKE_BACKWARD_PLAN_H_

#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// For every task, the worker that runs it in the simulation behind `efficiency`. All workers claim from one list, so
/// the real one is unknown.
[[nodiscard]] std::vector<int> PredictedWorkers(const BackwardPlan& plan);

/// @throws PlanTooLarge, std::bad_alloc
[[nodiscard]] BackwardPlan MakeBackwardPlan(const AttentionProblem& problem, const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_BACKWARD_PLAN_H_
