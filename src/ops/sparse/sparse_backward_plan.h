#ifndef FA_OPS_SPARSE_BACKWARD_PLAN_H_
#define FA_OPS_SPARSE_BACKWARD_PLAN_H_

#include <cstddef>
#include <utility>

#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/sparse/sparse_backward_tile.h"
#include "ops/sparse/sparse_kernels.h"
#include "tiling/sparse/make_sparse_plan.h"
#include "tiling/sparse/sparse_facts.h"

namespace fa {

/// A planned backward of sparse attention. Bound is a BoundSparseGrad with CheckSparseGradRunArgs and RowsOf for Args.
template <typename Args, typename Bound>
class SparseBackwardPlan final : public Plan::ImplFor<Args> {
 public:
  SparseBackwardPlan(Context& context, Bound bound)
      : Plan::ImplFor<Args>(context),
        bound_(std::move(bound)),
        table_(ops::KernelsOf(context, bound_.forward.attention.problem.dtype)),
        machine_(ops::MachineOf(context, table_)),
        sparse_(bound_.forward.Problem()),
        plan_(tiling::MakeSparseBackwardPlan(
            sparse_, machine_, ops::HeadsInPlace(table_, sparse_.attention.heads) != nullptr, bound_.has_gradients)),
        buffers_(bound_, plan_, table_, machine_.workers, workspace_) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    return FactsOf(sparse_, machine_, plan_, buffers_.sums.graph(),
                   ops::SparseKernelNames(table_, plan_, sparse_.attention.heads, /*forward=*/false));
  }

  [[nodiscard]] Status Run(const Args& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckSparseGradRunArgs(bound_, args));
    const ops::SparseGradRows rows = ops::RowsOf(bound_, args);
    ops::WriteUnusedGradients(sparse_, rows);
    ops::SparseBackwardTile tile(sparse_, plan_, table_, rows, buffers_, workspace);
    Status status = this->RunGraph(buffers_.sums.graph(), core::TaskFunction(tile), buffers_.sums.RunState(workspace));
    if (status.ok() && bound_.has_dsink) ops::WriteSinkGradient(sparse_, rows, buffers_, workspace);
    return status;
  }

 private:
  Bound bound_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  tiling::SparseProblem sparse_;  ///< sparse_ refers to bound_
  tiling::SparsePlan plan_;
  tiling::WorkspacePlan workspace_;
  ops::SparseBackwardBuffers buffers_;
};

}  // namespace fa

#endif  // FA_OPS_SPARSE_BACKWARD_PLAN_H_
