// Implements every version of aclnnFlashAttentionScoreGrad and aclnnFlashAttentionUnpaddingScoreGrad with
// fa::PlanFlashAttentionGrad.
#include "aclnn/operations/backward_operation.h"

#include <memory>
#include <utility>

#include "aclnn/operations/attention_slots.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/sequence_statistics.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "fa/flash_attention_grad.h"

namespace fa::aclnn {
namespace {

struct BackwardSlots : AttentionSlots {
  Operands::Slot d_out, softmax_max, softmax_sum, out;
  Operands::Slot dq, dq_rope, dk, dk_rope, dv, dpse, dsink;
};

/// Returns the name of the rope part of keys.
const char* KeyRopeName(const AttentionCall& call) { return call.version4 ? "keyRope" : "keyInRope"; }

BackwardSlots AddOperands(const BackwardTensors& tensors, const AttentionCall& call, Operands& operands) {
  const Operands::Form pse_form = PseForm(call, tensors.pse_shift);
  BackwardSlots slots{};
  slots.q = operands.Input("query", tensors.query);
  slots.q_rope = operands.OptionalInput("queryRope", tensors.query_rope);
  slots.k = operands.Input("keyIn", tensors.key_in);
  slots.k_rope = operands.OptionalInput(KeyRopeName(call), tensors.key_in_rope);
  slots.v = operands.Input("value", tensors.value);
  slots.d_out = operands.Input("dy", tensors.dy);
  slots.pse = operands.OptionalInput("pseShift", tensors.pse_shift, pse_form);
  slots.drop_mask = operands.OptionalInput("dropMask", tensors.drop_mask, Operands::Form::kFlat);
  operands.Ignored("paddingMask", tensors.padding_mask);
  slots.atten_mask = operands.OptionalInput("attenMask", tensors.atten_mask);
  slots.softmax_max = operands.Input("softmaxMax", tensors.softmax_max, Operands::Form::kAnyStride);
  slots.softmax_sum = operands.Input("softmaxSum", tensors.softmax_sum, Operands::Form::kAnyStride);
  operands.Ignored("softmaxIn", tensors.softmax_in);
  slots.out = operands.Input("attentionIn", tensors.attention_in);
  slots.sink = operands.OptionalInput("sinkIn", tensors.sink_in);
  slots.dq = operands.Output("dq", tensors.dq_out);
  slots.dq_rope = operands.OptionalOutput("dqRope", tensors.dq_rope_out);
  slots.dk = operands.Output("dk", tensors.dk_out);
  slots.dk_rope = operands.OptionalOutput("dkRope", tensors.dk_rope_out);
  slots.dv = operands.Output("dv", tensors.dv_out);
  // The device never writes dpse and dsink. The library writes them if pse or sink is given.
  slots.dpse = slots.dsink = Operands::kAbsent;
  if (slots.pse != Operands::kAbsent) {
    slots.dpse = operands.OptionalOutput("dpse", tensors.dpse_out, pse_form);
  } else {
    operands.Ignored("dpse", tensors.dpse_out, /*output=*/true);
  }
  if (slots.sink != Operands::kAbsent) {
    slots.dsink = operands.OptionalOutput("dsink", tensors.dsink_out);
  } else {
    operands.Ignored("dsink", tensors.dsink_out, /*output=*/true);
  }
  return slots;
}

class BackwardOperation final : public PlannedOperation<AttentionGradArgs> {
 public:
  BackwardOperation(Operands operands, const BackwardSlots& slots, AttentionSettings settings, const char* key_rope)
      : PlannedOperation(std::move(operands), Names::kBackward, {{"k_rope", key_rope}}),
        slots_(slots),
        settings_(std::move(settings)) {}

  [[nodiscard]] Status Prepare() {
    // If no output has elements, the device does nothing and checks nothing. dpse and dsink count as outputs here,
    // although the device never writes them.
    const bool parameters = slots_.dpse != Operands::kAbsent || slots_.dsink != Operands::kAbsent;
    if (!parameters && operands_.IsEmpty(slots_.dq) && operands_.IsEmpty(slots_.dk) && operands_.IsEmpty(slots_.dv)) {
      return Status::Ok();
    }
    if (settings_.statistics_by_sequence) {
      FA_RETURN_IF_ERROR(statistics_.Bind(operands_.In(slots_.q, nullptr), Blocks(nullptr),
                                          SequenceStatistics::Role::kRead, settings_.cu_q, operands_));
    }
    return Keep(PlanFlashAttentionGrad(Args(nullptr), settings_.options));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    if (settings_.statistics_by_sequence) statistics_.ReadBlocks(Blocks(&memory), memory);
    Status status = RunPlan(Args(&memory), memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  [[nodiscard]] SequenceStatistics::Blocks Blocks(const CallMemory* memory) const {
    return {operands_.In(slots_.softmax_max, memory), operands_.In(slots_.softmax_sum, memory)};
  }

  [[nodiscard]] AttentionGradArgs Args(const CallMemory* memory) const {
    const bool by_sequence = settings_.statistics_by_sequence;
    AttentionGradArgs args;
    SetInputs(slots_, operands_, settings_, memory, args);
    args.out = operands_.In(slots_.out, memory);
    args.d_out = operands_.In(slots_.d_out, memory);
    const auto [max, sum] = Blocks(memory);
    args.softmax_max = by_sequence ? TensorView(statistics_.Max(memory)) : max;
    args.softmax_sum = by_sequence ? TensorView(statistics_.Sum(memory)) : sum;
    args.dq = operands_.Out(slots_.dq, memory);
    args.dk = operands_.Out(slots_.dk, memory);
    args.dv = operands_.Out(slots_.dv, memory);
    args.dq_rope = operands_.Out(slots_.dq_rope, memory);
    args.dk_rope = operands_.Out(slots_.dk_rope, memory);
    const bool slopes = settings_.options.pse_type >= PseType::kSlopes;
    (slopes ? args.dslopes : args.dpse) = operands_.Out(slots_.dpse, memory);
    args.dsink = operands_.Out(slots_.dsink, memory);
    return args;
  }

  BackwardSlots slots_;
  AttentionSettings settings_;
  SequenceStatistics statistics_;
};

}  // namespace

aclnnStatus PrepareBackward(const BackwardTensors& tensors, const AttentionCall& call, uint64_t* workspace_size,
                            aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                            {"keyIn", tensors.key_in},
                                            {"value", tensors.value},
                                            {"dy", tensors.dy},
                                            {"softmaxMax", tensors.softmax_max},
                                            {"softmaxSum", tensors.softmax_sum},
                                            {"attentionIn", tensors.attention_in},
                                            {"inputLayout", call.input_layout},
                                            {"dq", tensors.dq_out},
                                            {"dk", tensors.dk_out},
                                            {"dv", tensors.dv_out},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (call.version4 && (tensors.sink_in == nullptr) != (tensors.dsink_out == nullptr)) {
      return Report(Status::InvalidArgument(tensors.sink_in == nullptr ? "dsink: given, want none without sinkIn"
                                                                       : "dsink: missing, want it with sinkIn"));
    }
    Operands operands;
    const BackwardSlots slots = AddOperands(tensors, call, operands);
    if (!operands.status().ok()) return Report(operands.status());
    auto settings = SettingsOf(call, slots.atten_mask != Operands::kAbsent);
    if (!settings.ok()) return Report(settings.status());
    auto operation =
        std::make_shared<BackwardOperation>(std::move(operands), slots, std::move(*settings), KeyRopeName(call));
    return Release(std::move(operation), workspace_size, executor);
  });
}

}  // namespace fa::aclnn
