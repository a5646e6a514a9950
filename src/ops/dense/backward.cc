
#include <utility>

#include "core/context/context_impl.h"
#include "fa/flash_attention_grad.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/dense/backward_program.h"
#include "ops/dense/gradient_sums.h"
#include "ops/dense/mask_tiles.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"

namespace fa {
namespace {

class BackwardPlanImpl final : public Plan::ImplFor<AttentionGradArgs> {
 public:
  BackwardPlanImpl(Context& context, ops::BoundAttentionGrad bound)
      : ImplFor(context),
        program_(context, std::move(bound)),
        mask_tiles_(program_.bound().forward, core::ImplOf(context).workers()) {
    mask_tiles_.Book(program_);
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const AttentionGradArgs& args, std::byte* workspace) const override {
    const ops::BoundAttentionGrad& bound = program_.bound();
    FA_RETURN_IF_ERROR(ops::CheckGradRunArgs(bound, args));
    ops::GradRows rows = ops::RowsOf(bound, args);
    FA_RETURN_IF_ERROR(mask_tiles_.Make(*this, workspace, &rows.scores));
    ops::WriteTailGradients(bound.forward.problem, rows);
    FA_RETURN_IF_ERROR(program_.Run(*this, rows, workspace));
    if (bound.has_dpse && bound.forward.problem.sequences.empty()) ops::ClearBiasGradient(args.dpse);
    program_.WriteSums(rows, workspace);
    return Status::Ok();
  }

 private:
  ops::BackwardProgram program_;
  ops::MaskTiles mask_tiles_;
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
