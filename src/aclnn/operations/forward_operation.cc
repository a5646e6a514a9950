// Implements every version of aclnnFlashAttentionScore and aclnnFlashAttentionVarLenScore with fa::PlanFlashAttention.
#include "aclnn/operations/forward_operation.h"

#include <memory>
#include <utility>

#include "aclnn/operations/attention_slots.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/sequence_statistics.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "fa/flash_attention.h"

namespace fa::aclnn {
namespace {

struct ForwardSlots : AttentionSlots {
  Operands::Slot softmax_max, softmax_sum, out;
};

ForwardSlots AddOperands(const ForwardTensors& tensors, const AttentionCall& call, Operands& operands) {
  ForwardSlots slots{};
  slots.q = operands.Input("query", tensors.query);
  slots.q_rope = operands.OptionalInput("queryRope", tensors.query_rope);
  slots.k = operands.Input("key", tensors.key);
  slots.k_rope = operands.OptionalInput("keyRope", tensors.key_rope);
  slots.v = operands.Input("value", tensors.value);
  slots.pse = operands.OptionalInput("realShift", tensors.real_shift, PseForm(call, tensors.real_shift));
  slots.drop_mask = operands.OptionalInput("dropMask", tensors.drop_mask, Operands::Form::kFlat);
  operands.Ignored("paddingMask", tensors.padding_mask);
  slots.atten_mask = operands.OptionalInput("attenMask", tensors.atten_mask);
  slots.sink = operands.OptionalInput("sink", tensors.sink);
  slots.softmax_max = operands.Output("softmaxMax", tensors.softmax_max_out, Operands::Form::kAnyStride);
  slots.softmax_sum = operands.Output("softmaxSum", tensors.softmax_sum_out, Operands::Form::kAnyStride);
  operands.Ignored("softmaxOut", tensors.softmax_out_out, /*output=*/true);
  slots.out = operands.Output("attentionOut", tensors.attention_out_out);
  return slots;
}

class ForwardOperation final : public PlannedOperation<AttentionArgs> {
 public:
  ForwardOperation(Operands operands, const ForwardSlots& slots, AttentionSettings settings)
      : PlannedOperation(std::move(operands), Names::kForward), slots_(slots), settings_(std::move(settings)) {}

  [[nodiscard]] Status Prepare() {
    // If no output has elements, the device does nothing and checks nothing.
    if (operands_.IsEmpty(slots_.softmax_max) && operands_.IsEmpty(slots_.softmax_sum) &&
        operands_.IsEmpty(slots_.out)) {
      return Status::Ok();
    }
    if (settings_.statistics_by_sequence) {
      const SequenceStatistics::Blocks blocks = {operands_.In(slots_.softmax_max, nullptr),
                                                 operands_.In(slots_.softmax_sum, nullptr)};
      FA_RETURN_IF_ERROR(statistics_.Bind(operands_.In(slots_.q, nullptr), blocks, SequenceStatistics::Role::kWritten,
                                          settings_.cu_q, operands_));
    }
    return Keep(PlanFlashAttention(Args(nullptr), settings_.options));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Status status = RunPlan(Args(&memory), memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    if (settings_.statistics_by_sequence) {
      statistics_.WriteBlocks(operands_.Out(slots_.softmax_max, &memory), operands_.Out(slots_.softmax_sum, &memory),
                              memory);
    }
    return status;
  }

 private:
  [[nodiscard]] AttentionArgs Args(const CallMemory* memory) const {
    const bool by_sequence = settings_.statistics_by_sequence;
    AttentionArgs args;
    SetInputs(slots_, operands_, settings_, memory, args);
    args.out = operands_.Out(slots_.out, memory);
    args.softmax_max = by_sequence ? statistics_.Max(memory) : operands_.Out(slots_.softmax_max, memory);
    args.softmax_sum = by_sequence ? statistics_.Sum(memory) : operands_.Out(slots_.softmax_sum, memory);
    return args;
  }

  ForwardSlots slots_;
  AttentionSettings settings_;
  SequenceStatistics statistics_;
};

}  // namespace

aclnnStatus PrepareForward(const ForwardTensors& tensors, const AttentionCall& call, uint64_t* workspace_size,
                           aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                            {"key", tensors.key},
                                            {"value", tensors.value},
                                            {"inputLayout", call.input_layout},
                                            {"softmaxMax", tensors.softmax_max_out},
                                            {"softmaxSum", tensors.softmax_sum_out},
                                            {"attentionOut", tensors.attention_out_out},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    Operands operands;
    const ForwardSlots slots = AddOperands(tensors, call, operands);
    if (!operands.status().ok()) return Report(operands.status());
    auto settings = SettingsOf(call, slots.atten_mask != Operands::kAbsent);
    if (!settings.ok()) return Report(settings.status());
    auto operation = std::make_shared<ForwardOperation>(std::move(operands), slots, std::move(*settings));
    return Release(std::move(operation), workspace_size, executor);
  });
}

}  // namespace fa::aclnn
