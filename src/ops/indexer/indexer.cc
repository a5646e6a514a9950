// LightningIndexer: bind -> plan -> run.

#include <utility>

#include "core/executor.h"
#include "fa/lightning_indexer.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_tile.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
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

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_.total_bytes(); }

  [[nodiscard]] PlanInfo info() const override {
    const ops::IndexerPlan& plan = program_.plan;
    PlanInfo info;
    info.op = "indexer";
    info.isa = Name(program_.table.isa);
    info.kernels = KernelNames();
    info.reason = plan.reason;
    info.block_q = plan.group;
    info.block_k = program_.KeyWidth();
    info.tasks = plan.graph.task_count;
    info.edges = static_cast<int64_t>(plan.graph.successors.size());
    info.workers = plan.graph.workers();
    info.flops = plan.flops;
    info.flops_full = plan.flops_full;
    info.flops_visited = plan.flops_visited;
    info.workspace_bytes = workspace_.total_bytes();
    info.load = plan.load;
    info.efficiency = ops::MeanLoad(plan.load);
    const std::vector<int> worker_of = ops::FirstWorkers(plan.graph);
    for (size_t t = 0; t < plan.items.size(); ++t) {
      const ops::IndexerItem& item = plan.items[t];
      const int64_t blocks = (item.keys.end - item.keys.begin + info.block_k - 1) / info.block_k;
      info.tiles.push_back({item.sequence, 0, 0, bound_.shape.heads, item.rows.begin, item.rows.end, item.keys.begin,
                            item.keys.end, blocks, worker_of[t]});
    }
    return info;
  }

  [[nodiscard]] std::string Describe() const override {
    const ops::IndexerPlan& plan = program_.plan;
    const ops::IndexerShape& shape = bound_.shape;
    tiling::PlanText text;
    text.AddLine("indexer, %s: %lld sequences, %lld tokens, up to %lld keys, %lld heads of %lld, the %lld best",
                 Name(shape.dtype), tiling::Count(shape.sequences.list.size()), tiling::Wide(shape.sequences.tokens),
                 tiling::Wide(shape.sequences.max_sk), tiling::Wide(shape.heads), tiling::Wide(shape.d),
                 tiling::Wide(bound_.entries));
    text.AddKernels(machine_, KernelNames());
    text.AddLine("group: %lld tokens: %s", tiling::Wide(plan.group), plan.reason.c_str());
    text.AddLine("tasks: %lld of scores, %lld of selections, %lld edges", tiling::Count(plan.items.size()),
                 tiling::Wide(plan.graph.task_count - std::ssize(plan.items)),
                 tiling::Count(plan.graph.successors.size()));
    text.AddFlops(plan.flops, plan.flops_full, plan.flops_visited);
    text.AddWorkspace(workspace_);
    text.AddWorkers(machine_, ops::MeanLoad(plan.load));
    return text.Take();
  }

  [[nodiscard]] Status Run(const LightningIndexerArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckIndexerRunArgs(bound_, args); !status.ok()) return status;
    ops::IndexerTile tile(bound_, program_, args, workspace);
    tile.WriteUnusedRows();
    return RunGraph(program_.plan.graph, core::TaskFunction(tile), workspace + program_.run_state);
  }

 private:
  [[nodiscard]] std::vector<std::string> KernelNames() const {
    return {program_.table.widest().name, program_.strips.kernels().name, program_.kernels.name};
  }

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
