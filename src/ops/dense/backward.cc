// FlashAttentionGrad: bind -> plan -> run.

#include <memory>
#include <string>
#include <utility>

#include "core/executor.h"
#include "fa/flash_attention_grad.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/dense/backward_tile.h"
#include "ops/dense/gradient_sums.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/backward_plan.h"
#include "tiling/describe_backward.h"

namespace fa {
namespace {

class BackwardPlanImpl final : public Plan::ImplFor<AttentionGradArgs> {
 public:
  BackwardPlanImpl(Context& context, ops::BoundAttentionGrad bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        table_(ops::KernelsOf(context, bound_.forward.problem.dtype)),
        machine_(ops::MachineOf(context, table_)),
        plan_(tiling::MakeBackwardPlan(bound_.forward.problem, machine_)),
        buffers_(bound_, plan_, table_, workspace_) {}

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_.total_bytes(); }

  [[nodiscard]] PlanInfo info() const override {
    PlanInfo info;
    info.op = "backward";
    info.isa = Name(table_.isa);
    info.kernels = KernelNames();
    info.reason = plan_.reason;
    info.block_q = plan_.block_q;
    info.block_k = plan_.block_k;
    info.tasks = plan_.graph.task_count;
    info.edges = static_cast<int64_t>(plan_.graph.successors.size());
    info.workers = plan_.graph.workers();
    info.flops = plan_.flops;
    info.flops_full = plan_.flops_full;
    info.flops_visited = plan_.flops_visited;
    info.workspace_bytes = workspace_.total_bytes();
    info.load = plan_.load;
    info.efficiency = plan_.efficiency;
    const std::vector<int> worker_of = tiling::PredictedWorkers(plan_);
    for (size_t t = 0; t < plan_.items.size(); ++t) {
      const tiling::BackwardItem& item = plan_.items[t];
      info.tiles.push_back({item.sequence, item.head_kv, item.head, item.head + 1, item.row_begin, item.row_end,
                            item.key_begin, item.key_end, item.cost, worker_of[t]});
    }
    return info;
  }

  [[nodiscard]] std::string Describe() const override {
    return tiling::DescribeBackward(bound_.forward.problem, machine_, plan_, workspace_, KernelNames());
  }

  [[nodiscard]] Status Run(const AttentionGradArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckGradRunArgs(bound_, args); !status.ok()) return status;
    const AttentionArgs forward = ops::ForwardArgs(args);
    ops::WriteTailGradients(bound_, args);
    ops::ClearGradientSums(bound_, buffers_, workspace);
    ops::BackwardTile tile(bound_, plan_, table_, args, forward, buffers_, workspace);
    if (Status status = RunGraph(plan_.graph, core::TaskFunction(tile), buffers_.RunState(workspace)); !status.ok()) {
      return status;
    }
    ops::WriteGradientSums(bound_, table_, args, buffers_, workspace);
    return Status::Ok();
  }

 private:
  [[nodiscard]] std::vector<std::string> KernelNames() const { return {table_.widest().name}; }

  ops::BoundAttentionGrad bound_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  tiling::BackwardPlan plan_;
  tiling::WorkspacePlan workspace_;
  ops::BackwardBuffers buffers_;
};

}  // namespace

Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                          const AttentionOptions& options, Context* context) {
  return ops::MakePlan<BackwardPlanImpl>(context, [&]() -> Result<ops::BoundAttentionGrad> {
    auto bound = ops::BindAttentionGrad(args, options);
    if (!bound.ok()) return bound;
    const Status status = ops::CheckWorkspace(ops::BackwardBuffers::SumBytes(*bound));
    return status.ok() ? std::move(bound) : status;
  });
}

Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options, Context* context) {
  auto plan = PlanFlashAttentionGrad(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
