#ifndef FA_TILING_MAKE_SPARSE_PLAN_H_
#define FA_TILING_MAKE_SPARSE_PLAN_H_

#include "tiling/problem.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::tiling {

/// Plans the forward. @param in_place  whether the kernels read rows of keys in place
[[nodiscard]] SparsePlan MakeSparseForwardPlan(const SparseProblem& sparse, const Machine& machine, bool in_place);
/// Plans the backward. @param gradients  if false, only probabilities are computed, for their means over the heads
[[nodiscard]] SparsePlan MakeSparseBackwardPlan(const SparseProblem& sparse, const Machine& machine,
                                                bool in_place = false, bool gradients = true);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_SPARSE_PLAN_H_
