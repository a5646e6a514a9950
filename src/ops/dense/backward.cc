// FlashAttentionGrad: bind -> plan -> run.

#include <memory>
#include <string>
#include <utility>

#include "core/run/executor.h"
#include "fa/flash_attention_grad.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/dense/backward_tile.h"
#include "ops/dense/gradient_sums.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/backward/backward_facts.h"
#include "tiling/backward/make_backward_plan.h"

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

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    return FactsOf(bound_.forward.problem, machine_, plan_, {table_.widest().name});
  }

  [[nodiscard]] Status Run(const AttentionGradArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckGradRunArgs(bound_, args); !status.ok()) return status;
    const tiling::AttentionProblem& problem = bound_.forward.problem;
    const ops::GradRows rows = ops::RowsOf(bound_, args);
    ops::WriteTailGradients(problem, rows);
    ops::ClearGradientSums(problem, buffers_, workspace);
    ops::BackwardTile tile(problem, plan_, table_, rows, buffers_, workspace);
    if (Status status = RunGraph(plan_.graph, core::TaskFunction(tile), buffers_.RunState(workspace)); !status.ok()) {
      return status;
    }
    if (bound_.has_dpse && problem.sequences.empty()) ops::ClearBiasGradient(args.dpse);
    ops::WriteGradientSums(problem, table_, rows, buffers_, workspace);
    return Status::Ok();
  }

 private:
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
