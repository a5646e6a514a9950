#ifndef FA_OPS_LOSS_PLAN_H_
#define FA_OPS_LOSS_PLAN_H_

#include <cstddef>
#include <string>
#include <utility>

#include "core/task_graph.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/indexer/loss/bind_indexer_loss.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_facts.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The plan of a KL loss, with the bound call and the layout of the workspace. `Program` has the tasks and the layout
/// of their buffers. A run makes one object of type `Tile`, which runs all tasks.
template <typename Program, typename Tile, typename LossArgs>
class LossPlan final : public Plan::ImplFor<LossArgs> {
 public:
  LossPlan(Context& context, BoundIndexerLoss bound)
      : Plan::ImplFor<LossArgs>(context),
        bound_(std::move(bound)),
        machine_(MachineOf(context, KernelsOf(context, bound_.problem.shape.dtype))),
        program_(bound_.problem, KernelsOf(context, bound_.problem.shape.dtype), machine_.workers, workspace_) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(machine_); }

  [[nodiscard]] Status Run(const LossArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(CheckIndexerLossRunArgs(bound_, args));
    const LossRows rows = RowsOf(bound_, args);
    ClearUnusedGradients(bound_.problem.shape, rows.gradients);
    if (rows.softmax_index.data != nullptr) {
      bound_.problem.shape.sequences.ForUnusedQueries([&](int64_t batch, tiling::Interval unused) {
        for (int64_t row = unused.begin; row < unused.end; ++row) {
          rows.softmax_index.Clear(batch, 0, row, bound_.problem.lists.entries);
        }
      });
    }
    Tile tile(program_, rows, workspace);
    Status status =
        this->RunGraph(program_.tasks.graph(), core::TaskFunction(tile), program_.tasks.RunState(workspace));
    if (status.ok()) tile.WriteLoss();
    return status;
  }

 private:
  BoundIndexerLoss bound_;
  tiling::Machine machine_;
  tiling::WorkspacePlan workspace_;
  Program program_;
};

}  // namespace fa::ops

#endif  // FA_OPS_LOSS_PLAN_H_
