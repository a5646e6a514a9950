#ifndef FA_TILING_DESCRIBE_H_
#define FA_TILING_DESCRIBE_H_

#include <string>
#include <vector>

#include "tiling/forward_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::tiling {

/// The plan in words: problem, kernels, tile shape and why, tasks, FLOPs, memory, load of each worker.
[[nodiscard]] std::string DescribeForward(const AttentionProblem& problem, const Machine& machine,
                                          const ForwardPlan& plan, const WorkspacePlan& workspace,
                                          const std::vector<std::string>& kernels, const char* op = "forward");

}  // namespace fa::tiling

#endif  // FA_TILING_DESCRIBE_H_
