// The operator PromptFlashAttention. A call is bound, planned and run, with the forward's program or the program of
// int8 operands.

#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "fa/prompt_flash_attention.h"
#include "ops/dense/forward_program.h"
#include "ops/dense/mask_tiles.h"
#include "ops/inference/bind_prompt.h"
#include "ops/inference/int8_program.h"
#include "ops/inference/output_scales.h"
#include "ops/inference/product_scales.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"

namespace fa {
namespace {

using ops::BoundPrompt;

/// `Program` is ForwardProgram or Int8Program.
template <typename Program>
class PromptPlanImpl final : public Plan::ImplFor<PromptAttentionArgs> {
 public:
  PromptPlanImpl(Context& context, BoundPrompt bound)
      : ImplFor(context),
        output_(core::kernels::Int8KernelsFor(context.isa())),
        program_("prompt", context, std::move(bound.attention)),
        mask_tiles_(program_.bound(), core::ImplOf(context).workers()),
        bound_(std::move(bound)) {
    mask_tiles_.Book(program_);
    if (bound_.scales.strided) scales_at_ = program_.Book("output scales", ops::OutputScaleBytes(bound_.scales));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const PromptAttentionArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckPromptRunArgs(program_.bound(), args));
    ops::ForwardRows rows = ops::RowsOf(program_.bound(), args);
    FA_RETURN_IF_ERROR(mask_tiles_.Make(*this, workspace, &rows.scores));
    ops::OutputQuantization quantization;
    if (bound_.scales.quantized) {
      quantization =
          ops::ReadOutputScales(bound_.scales, args.quant_scale2, args.quant_offset2, output_, workspace + scales_at_);
    }
    const ops::OutputQuantization* quantized = bound_.scales.quantized ? &quantization : nullptr;
    if constexpr (std::is_same_v<Program, ops::Int8Program>) {
      const Result<ops::ProductScales> scales =
          ops::ReadProductScales(ops::ProductScalesOf(args), program_.bound().scale);
      if (!scales.ok()) return scales.status();
      return program_.Run(*this, rows, *scales, quantized, workspace);
    } else {
      return program_.Run(*this, rows, workspace, quantized);
    }
  }

 private:
  const core::kernels::Int8Table& output_;
  Program program_;
  ops::MaskTiles mask_tiles_;
  BoundPrompt bound_;  ///< the bound call without `attention`, which the program holds
  size_t scales_at_ = 0;
};

}  // namespace

Result<PlanFor<PromptAttentionArgs>> PlanPromptFlashAttention(const PromptAttentionArgs& args,
                                                              const PromptAttentionOptions& options, Context* context) {
  const auto bind = [&] { return ops::BindPrompt(args, options); };
  if (args.q.dtype == DType::kI8) return ops::MakePlan<PromptPlanImpl<ops::Int8Program>>(context, bind);
  return ops::MakePlan<PromptPlanImpl<ops::ForwardProgram>>(context, bind);
}

Status PromptFlashAttention(const PromptAttentionArgs& args, const PromptAttentionOptions& options, Context* context) {
  auto plan = PlanPromptFlashAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
