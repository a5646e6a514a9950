#ifndef FA_OPS_SPARSE_FORWARD_PLAN_H_
#define FA_OPS_SPARSE_FORWARD_PLAN_H_

#include <cstddef>
#include <utility>

#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/sparse/sparse_forward_tile.h"
#include "ops/sparse/sparse_kernels.h"
#include "tiling/sparse/make_sparse_plan.h"
#include "tiling/sparse/sparse_facts.h"

namespace fa {

/// A planned forward of sparse attention. Bound is a BoundSparse with CheckSparseRunArgs and RowsOf for Args.
template <typename Args, typename Bound>
class SparseForwardPlan final : public Plan::ImplFor<Args> {
 public:
  SparseForwardPlan(Context& context, Bound bound)
      : Plan::ImplFor<Args>(context),
        bound_(std::move(bound)),
        table_(ops::KernelsOf(context, bound_.attention.problem.dtype)),
        machine_(ops::MachineOf(context, table_)),
        sparse_(bound_.Problem()),
        plan_(tiling::MakeSparseForwardPlan(sparse_, machine_, ops::ReadsKeysInPlace(bound_, table_))),
        buffers_(bound_, plan_, table_, workspace_) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    return FactsOf(sparse_, machine_, plan_, plan_.graph,
                   ops::SparseKernelNames(table_, plan_, sparse_.attention.heads, /*forward=*/true));
  }

  [[nodiscard]] Status Run(const Args& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckSparseRunArgs(bound_, args));
    const ops::SparseRows rows = ops::RowsOf(bound_, args);
    ops::WriteUnusedSparseRows(sparse_, rows);
    ops::SparseForwardTile tile(sparse_, plan_, table_, rows, buffers_, workspace);
    return this->RunGraph(plan_.graph, core::TaskFunction(tile), workspace + buffers_.run_state);
  }

 private:
  Bound bound_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  tiling::SparseProblem sparse_;  ///< sparse_ refers to bound_
  tiling::SparsePlan plan_;
  tiling::WorkspacePlan workspace_;
  ops::SparseForwardBuffers buffers_;
};

}  // namespace fa

#endif  // FA_OPS_SPARSE_FORWARD_PLAN_H_
