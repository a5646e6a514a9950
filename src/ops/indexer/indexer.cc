// LightningIndexer: bind -> plan -> run.

#include <utility>

#include "core/executor.h"
#include "fa/lightning_indexer.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_tile.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/indexer_facts.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

class IndexerPlanImpl final : public Plan::ImplFor<LightningIndexerArgs> {
 public:
  IndexerPlanImpl(Context& context, ops::BoundIndexer bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        machine_(ops::MachineOf(context, ops::KernelsOf(context, bound_.shape.dtype))),
        program_(bound_, ops::KernelsOf(context, bound_.shape.dtype), machine_) {
    const core::TaskGraph& graph = program_.plan.graph;
    program_.run_state = workspace_.Book("run state", core::RunStateBytes(graph));
    program_.scratch =
        workspace_.Book("scores and selection of the groups in flight", program_.scratch_bytes, graph.workers());
    const int64_t rows = program_.plan.cut ? bound_.shape.sequences.tokens : 0;
    program_.scores =
        workspace_.Book("scores of all tokens", static_cast<size_t>(program_.row_floats) * sizeof(float), rows);
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    const ops::IndexerShape& shape = bound_.shape;
    return FactsOf({.dtype = shape.dtype,
                    .heads = shape.heads,
                    .d = shape.d,
                    .entries = bound_.entries,
                    .key_width = program_.KeyWidth()},
                   shape.sequences, machine_, program_.plan,
                   {program_.table.widest().name, program_.strips.kernels().name, program_.kernels.name});
  }

  [[nodiscard]] Status Run(const LightningIndexerArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckIndexerRunArgs(bound_, args); !status.ok()) return status;
    const ops::SelectionRows rows = ops::RowsOf(bound_, args);
    ops::IndexerTile tile(bound_, program_, rows, workspace);
    tile.WriteUnusedRows();
    return RunGraph(program_.plan.graph, core::TaskFunction(tile), workspace + program_.run_state);
  }

 private:
  ops::BoundIndexer bound_;
  tiling::Machine machine_;
  ops::IndexerProgram program_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Result<PlanFor<LightningIndexerArgs>> PlanLightningIndexer(const LightningIndexerArgs& args,
                                                           const LightningIndexerOptions& options, Context* context) {
  return ops::MakePlan<IndexerPlanImpl>(context, [&] { return ops::BindIndexer(args, options); });
}

Status LightningIndexer(const LightningIndexerArgs& args, const LightningIndexerOptions& options, Context* context) {
  auto plan = PlanLightningIndexer(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
