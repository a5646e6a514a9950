// DecodeAttention: bind -> plan -> run. The tile program is the forward's; only where it finds keys differs.

#include <utility>

#include "fa/decode_attention.h"
#include "ops/dense/forward_program.h"
#include "ops/inference/antiquant.h"
#include "ops/inference/bind_decode.h"
#include "ops/inference/output_scales.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"

namespace fa {
namespace {

class DecodePlanImpl final : public Plan::ImplFor<DecodeAttentionArgs> {
 public:
  DecodePlanImpl(Context& context, ops::BoundDecode bound)
      : ImplFor(context), bound_(std::move(bound)), program_("decode", context, bound_.attention) {
    if (bound_.storage.quantized) antiquant_at_ = program_.Book("key scales", ops::AntiquantBytes(bound_));
    if (bound_.scales.strided) scales_at_ = program_.Book("output scales", ops::OutputScaleBytes(bound_.scales));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const DecodeAttentionArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckDecodeRunArgs(bound_, args); !status.ok()) return status;
    ops::ForwardRows rows = ops::RowsOf(bound_, args);
    if (bound_.storage.quantized) {
      ops::ReadAntiquant(bound_, {args.antiquant_scale, args.antiquant_offset},
                         reinterpret_cast<float*>(workspace + antiquant_at_), rows);
    }
    ops::OutputQuantization quantization;
    if (bound_.scales.quantized) {
      quantization = ops::ReadOutputScales(bound_.scales, args.quant_scale2, args.quant_offset2,
                                           core::kernels::Int8KernelsFor(context().isa()), workspace + scales_at_);
    }
    return program_.Run(*this, rows, workspace, bound_.scales.quantized ? &quantization : nullptr);
  }

 private:
  ops::BoundDecode bound_;
  ops::ForwardProgram program_;
  size_t antiquant_at_ = 0, scales_at_ = 0;
};

}  // namespace

Result<PlanFor<DecodeAttentionArgs>> PlanDecodeAttention(const DecodeAttentionArgs& args,
                                                         const DecodeAttentionOptions& options, Context* context) {
  return ops::MakePlan<DecodePlanImpl>(context, [&] { return ops::BindDecode(args, options); });
}

Status DecodeAttention(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options, Context* context) {
  auto plan = PlanDecodeAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
