
#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "fa/flash_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/dense/forward_program.h"
#include "ops/dense/mask_tiles.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"

namespace fa {
namespace {

class ForwardPlanImpl final : public Plan::ImplFor<AttentionArgs> {
 public:
  ForwardPlanImpl(Context& context, ops::BoundAttention bound)
      : ImplFor(context),
        program_("forward", context, std::move(bound)),
        mask_tiles_(program_.bound(), core::ImplOf(context).workers()) {
    mask_tiles_.Book(program_);
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const AttentionArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckRunArgs(program_.bound(), args));
    ops::ForwardRows rows = ops::RowsOf(program_.bound(), args);
    FA_RETURN_IF_ERROR(mask_tiles_.Make(*this, workspace, &rows.scores));
    return program_.Run(*this, rows, workspace);
  }

 private:
  ops::ForwardProgram program_;
  ops::MaskTiles mask_tiles_;
};

}  // namespace

Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                  Context* context) {
  return ops::MakePlan<ForwardPlanImpl>(context, [&] { return ops::BindAttention(args, options); });
}

Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, Context* context) {
  auto plan = PlanFlashAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
