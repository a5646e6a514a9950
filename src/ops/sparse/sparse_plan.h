#ifndef FA_OPS_SPARSE_PLAN_H_
#define FA_OPS_SPARSE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "core/task_graph.h"
#include "fa/plan.h"
#include "ops/sparse/bind_sparse.h"
#include "tiling/problem.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// How a sparse call is cut into tasks. There is one list, claimed from the front: the cost of a token is the length of
/// its list, which only Run knows.
struct SparsePlan {
  const char* op = "";
  int64_t block_k = 0;          ///< keys gathered at a time, a constant: twice those that one step takes
  int64_t tile_heads = 0;       ///< heads that go through a token's keys together
  int64_t tokens_per_task = 1;  ///< of one sequence or several, in order
  int64_t heads_per_task = 0;
  int64_t token_tasks = 0;
  double flops = 0;
  std::string reason;
  core::TaskGraph graph;  ///< of the forward; the backward's are KeySumTasks

  [[nodiscard]] int64_t head_tasks(int64_t heads) const { return (heads + heads_per_task - 1) / heads_per_task; }
};

/// @param in_place  the kernels read the rows of keys where they lie
[[nodiscard]] SparsePlan MakeSparseForwardPlan(const BoundSparse& bound, const tiling::Machine& machine, bool in_place);
[[nodiscard]] SparsePlan MakeSparseBackwardPlan(const BoundSparse& bound);

/// The kernels that take all of a token's heads at once, if heads are few: those of few rows, which read keys in place,
/// or the narrowest strip with its state by rows, whose product loads fewer operands; else null.
[[nodiscard]] const core::kernels::StripKernels* FewHeads(const core::kernels::KernelTable& table, int64_t heads);
[[nodiscard]] bool ReadsKeysInPlace(const core::kernels::KernelTable& table, int64_t heads);

/// The names of the strips' kernels, in order of use.
[[nodiscard]] std::vector<std::string> SparseKernelNames(const core::kernels::KernelTable& table,
                                                         const SparsePlan& plan, int64_t heads, bool few);

[[nodiscard]] PlanInfo InfoOf(const SparsePlan& plan, const core::TaskGraph& graph, const BoundSparse& bound,
                              const tiling::WorkspacePlan& workspace, std::vector<std::string> kernels, Isa isa);
/// The plan in words.
[[nodiscard]] std::string DescribeSparse(const SparsePlan& plan, const core::TaskGraph& graph, const BoundSparse& bound,
                                         const tiling::Machine& machine, const tiling::WorkspacePlan& workspace,
                                         const std::vector<std::string>& kernels);

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_PLAN_H_
