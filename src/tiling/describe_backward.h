#ifndef FA_TILING_DESCRIBE_BACKWARD_H_
#define FA_TILING_DESCRIBE_BACKWARD_H_

#include <string>
#include <vector>

#include "tiling/backward_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::tiling {

/// The plan in words: problem, kernels, tile shape and why, order of the sums, tasks, heads in flight, FLOPs, memory,
/// predicted load of each worker.
[[nodiscard]] std::string DescribeBackward(const AttentionProblem& problem, const Machine& machine,
                                           const BackwardPlan& plan, const WorkspacePlan& workspace,
                                           const std::vector<std::string>& kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_DESCRIBE_BACKWARD_H_
