// The operator DecodeAttention. A call is bound, planned and run. The tile program is the forward's, or the tile
// program of int8 operands. Only the way in which the tile program finds keys differs.

#include <type_traits>
#include <utility>

#include "fa/decode_attention.h"
#include "ops/dense/forward_program.h"
#include "ops/inference/bind_decode.h"
#include "ops/inference/int8_program.h"
#include "ops/inference/output_scales.h"
#include "ops/inference/product_scales.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"

namespace fa {
namespace {

/// `Program` is ForwardProgram or, for i8 queries, Int8Program.
template <typename Program>
class DecodePlanImpl final : public Plan::ImplFor<DecodeAttentionArgs> {
 public:
  DecodePlanImpl(Context& context, ops::BoundDecode bound)
      : ImplFor(context), bound_(std::move(bound)), program_("decode", context, bound_.attention) {
    if (bound_.scales.strided) scales_at_ = program_.Book("output scales", ops::OutputScaleBytes(bound_.scales));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const DecodeAttentionArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckDecodeRunArgs(bound_, args, ops::TensorsOf(args)));
    const ops::ForwardRows rows = ops::RowsOf(bound_, args);
    ops::OutputQuantization quantization;
    if (bound_.scales.quantized) {
      quantization = ops::ReadOutputScales(bound_.scales, args.quant_scale2, args.quant_offset2,
                                           core::kernels::Int8KernelsFor(context().isa()), workspace + scales_at_);
    }
    const ops::OutputQuantization* quantized = bound_.scales.quantized ? &quantization : nullptr;
    if constexpr (std::is_same_v<Program, ops::Int8Program>) {
      const auto scales = ops::ReadProductScales(ops::ProductScalesOf(args), bound_.attention.scale);
      if (!scales.ok()) return scales.status();
      return program_.Run(*this, rows, *scales, quantized, workspace);
    } else {
      return program_.Run(*this, rows, workspace, quantized);
    }
  }

 private:
  ops::BoundDecode bound_;
  Program program_;
  size_t scales_at_ = 0;
};

}  // namespace

Result<PlanFor<DecodeAttentionArgs>> PlanDecodeAttention(const DecodeAttentionArgs& args,
                                                         const DecodeAttentionOptions& options, Context* context) {
  const auto bind = [&] { return ops::BindDecode(args, options); };
  if (args.q.dtype == DType::kI8) return ops::MakePlan<DecodePlanImpl<ops::Int8Program>>(context, bind);
  return ops::MakePlan<DecodePlanImpl<ops::ForwardProgram>>(context, bind);
}

Status DecodeAttention(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options, Context* context) {
  auto plan = PlanDecodeAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
