#ifndef FA_TILING_MAKE_FORWARD_PLAN_H_
#define FA_TILING_MAKE_FORWARD_PLAN_H_

#include "tiling/forward/forward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Makes the plan of the dense forward. @throws PlanTooLarge, std::bad_alloc
[[nodiscard]] ForwardPlan MakeForwardPlan(const AttentionProblem& problem, const Machine& machine);

/// Returns the fewest rows that a sequence needs so that its heads are packed, whatever its mask is.
[[nodiscard]] int64_t FewestPackedRows(const AttentionProblem& problem, int64_t strip_rows);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_FORWARD_PLAN_H_
