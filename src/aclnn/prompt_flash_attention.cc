// Implements aclnnPromptFlashAttention V1 to V3 with fa::PlanPromptFlashAttention.
#include "fa/prompt_flash_attention.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "aclnnop/aclnn_prompt_flash_attention.h"
#include "aclnnop/aclnn_prompt_flash_attention_v2.h"
#include "aclnnop/aclnn_prompt_flash_attention_v3.h"

namespace fa::aclnn {
namespace {

using Slot = Operands::Slot;

/// The parameters of every version. If a version lacks a parameter, its member is null or has the default.
struct PromptTensors {
  const aclTensor *query, *key, *value, *pse_shift, *atten_mask;
  const aclTensor *deq_scale1 = nullptr, *quant_scale1 = nullptr, *deq_scale2 = nullptr;
  const aclTensor *quant_scale2 = nullptr, *quant_offset2 = nullptr;
  const aclTensor* attention_out;
  bool honours_pse = false;
};

struct PromptCall {
  const aclIntArray *actual_seq_lengths, *actual_seq_lengths_kv = nullptr;
  int64_t num_heads;
  double scale_value;
  int64_t pre_tokens, next_tokens;
  const char* input_layout;
  int64_t num_key_value_heads;
  int64_t sparse_mode = 0;
};

struct PromptSlots {
  Slot q, k, v, pse, atten_mask, deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2, out;
};

PromptSlots AddOperands(const PromptTensors& tensors, Operands& operands) {
  PromptSlots slots{};
  slots.q = operands.Input("query", tensors.query);
  slots.k = operands.Input("key", tensors.key);
  slots.v = operands.Input("value", tensors.value);
  slots.pse = Operands::kAbsent;
  if (tensors.honours_pse) {
    slots.pse = operands.OptionalInput("pseShift", tensors.pse_shift);
  } else {
    operands.Ignored("pseShift", tensors.pse_shift);
  }
  slots.atten_mask = operands.OptionalInput("attenMask", tensors.atten_mask);
  slots.deq_scale1 = operands.OptionalInput("deqScale1", tensors.deq_scale1);
  slots.quant_scale1 = operands.OptionalInput("quantScale1", tensors.quant_scale1);
  slots.deq_scale2 = operands.OptionalInput("deqScale2", tensors.deq_scale2);
  slots.quant_scale2 = operands.OptionalInput("quantScale2", tensors.quant_scale2, Operands::Form::kDense);
  slots.quant_offset2 = operands.OptionalInput("quantOffset2", tensors.quant_offset2, Operands::Form::kDense);
  slots.out = operands.Output("attentionOut", tensors.attention_out);
  return slots;
}

/// A call in the library's terms.
struct PromptSettings {
  PromptAttentionOptions options;
  std::vector<int64_t> lengths_q, lengths_kv;  ///< lengths, in TND as prefix sums
};

std::optional<Layout> LayoutOf(std::string_view name) {
  for (const Layout layout : {Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kBNSD_BSND, Layout::kTND}) {
    if (name == Name(layout)) return layout;
  }
  return {};
}

Result<Mask> MaskOf(const PromptCall& call, bool mask_given) {
  if (call.sparse_mode < 0 || call.sparse_mode > 4) {
    return Status::InvalidArgument("sparseMode=" + std::to_string(call.sparse_mode) + ", want 0..4");
  }
  if (!mask_given && call.sparse_mode >= 2) {
    return Status::InvalidArgument("attenMask: missing, want the compressed mask (sparseMode " +
                                   std::to_string(call.sparse_mode) + ")");
  }
  return Mask::FromSparseMode(call.sparse_mode, BoundOf(call.pre_tokens), BoundOf(call.next_tokens), {}, mask_given);
}

Result<PromptSettings> SettingsOf(const PromptCall& call, bool mask_given) {
  PromptSettings settings;
  const std::optional<Layout> layout = LayoutOf(call.input_layout);
  if (!layout) {
    return Status::InvalidArgument("inputLayout=\"" + std::string(call.input_layout) +
                                   "\", want \"BSH\", \"BSND\", \"BNSD\", \"BNSD_BSND\" or \"TND\"");
  }
  if (call.num_heads <= 0) {
    return Status::InvalidArgument("numHeads=" + std::to_string(call.num_heads) + ", want >= 1");
  }
  if (call.num_key_value_heads < 0) {
    return Status::InvalidArgument("numKeyValueHeads=" + std::to_string(call.num_key_value_heads) + ", want >= 0");
  }
  settings.options.layout = *layout;
  settings.options.heads = call.num_heads;
  settings.options.heads_kv = call.num_key_value_heads == 0 ? call.num_heads : call.num_key_value_heads;
  settings.options.scale = static_cast<float>(call.scale_value);
  auto mask = MaskOf(call, mask_given);
  if (!mask.ok()) return mask.status();
  settings.options.mask = std::move(*mask);
  auto lengths_q = ValuesOf("actualSeqLengths", call.actual_seq_lengths);
  if (!lengths_q.ok()) return lengths_q.status();
  auto lengths_kv = ValuesOf("actualSeqLengthsKv", call.actual_seq_lengths_kv);
  if (!lengths_kv.ok()) return lengths_kv.status();
  settings.lengths_q = std::move(*lengths_q);
  settings.lengths_kv = std::move(*lengths_kv);
  return settings;
}

class PromptOperation final : public PlannedOperation<PromptAttentionArgs> {
 public:
  PromptOperation(Operands operands, const PromptSlots& slots, PromptSettings settings)
      : PlannedOperation(std::move(operands), Names::kPrompt), slots_(slots), settings_(std::move(settings)) {}

  [[nodiscard]] Status Prepare() {
    // If the output has no elements, the device does nothing and checks nothing.
    if (operands_.IsEmpty(slots_.out)) return Status::Ok();
    return Keep(PlanPromptFlashAttention(Args(nullptr), settings_.options));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Status status = RunPlan(Args(&memory), memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  [[nodiscard]] PromptAttentionArgs Args(const CallMemory* memory) const {
    const bool packed = settings_.options.layout == Layout::kTND;
    PromptAttentionArgs args;
    args.q = operands_.In(slots_.q, memory);
    args.k = operands_.In(slots_.k, memory);
    args.v = operands_.In(slots_.v, memory);
    args.pse = operands_.In(slots_.pse, memory);
    args.dense_mask = operands_.In(slots_.atten_mask, memory);
    args.deq_scale1 = operands_.In(slots_.deq_scale1, memory);
    args.quant_scale1 = operands_.In(slots_.quant_scale1, memory);
    args.deq_scale2 = operands_.In(slots_.deq_scale2, memory);
    args.quant_scale2 = operands_.In(slots_.quant_scale2, memory);
    args.quant_offset2 = operands_.In(slots_.quant_offset2, memory);
    (packed ? args.cu_q : args.lengths_q) = settings_.lengths_q;
    (packed ? args.cu_kv : args.lengths_kv) = settings_.lengths_kv;
    args.out = operands_.Out(slots_.out, memory);
    return args;
  }

  PromptSlots slots_;
  PromptSettings settings_;
};

aclnnStatus PreparePrompt(const PromptTensors& tensors, const PromptCall& call, uint64_t* workspace_size,
                          aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                            {"key", tensors.key},
                                            {"value", tensors.value},
                                            {"inputLayout", call.input_layout},
                                            {"attentionOut", tensors.attention_out},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    Operands operands;
    const PromptSlots slots = AddOperands(tensors, operands);
    if (!operands.status().ok()) return Report(operands.status());
    auto settings = SettingsOf(call, slots.atten_mask != Operands::kAbsent);
    if (!settings.ok()) return Report(settings.status());
    auto operation = std::make_shared<PromptOperation>(std::move(operands), slots, std::move(*settings));
    return Release(std::move(operation), workspace_size, executor);
  });
}

}  // namespace
}  // namespace fa::aclnn

using fa::aclnn::PreparePrompt;

aclnnStatus aclnnPromptFlashAttentionGetWorkspaceSize(const aclTensor* query, const aclTensor* key,
                                                      const aclTensor* value, const aclTensor* pseShift,
                                                      const aclTensor* attenMask, const aclIntArray* actualSeqLengths,
                                                      int64_t numHeads, double scaleValue, int64_t preTokens,
                                                      int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
                                                      const aclTensor* attentionOut, uint64_t* workspaceSize,
                                                      aclOpExecutor** executor) {
  return PreparePrompt({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .pre_tokens = preTokens,
                        .next_tokens = nextTokens,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnPromptFlashAttention)

aclnnStatus aclnnPromptFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PreparePrompt({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .deq_scale1 = deqScale1,
                        .quant_scale1 = quantScale1,
                        .deq_scale2 = deqScale2,
                        .quant_scale2 = quantScale2,
                        .quant_offset2 = quantOffset2,
                        .attention_out = attentionOut},
                       {.actual_seq_lengths = actualSeqLengths,
                        .actual_seq_lengths_kv = actualSeqLengthsKv,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .pre_tokens = preTokens,
                        .next_tokens = nextTokens,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads,
                        .sparse_mode = sparseMode},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnPromptFlashAttentionV2)

aclnnStatus aclnnPromptFlashAttentionV3GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
    const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens,
    char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode, int64_t /*innerPrecise*/,
    const aclTensor* attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PreparePrompt({.query = query,
                        .key = key,
                        .value = value,
                        .pse_shift = pseShift,
                        .atten_mask = attenMask,
                        .deq_scale1 = deqScale1,
                        .quant_scale1 = quantScale1,
                        .deq_scale2 = deqScale2,
                        .quant_scale2 = quantScale2,
                        .quant_offset2 = quantOffset2,
                        .attention_out = attentionOut,
                        .honours_pse = true},
                       {.actual_seq_lengths = actualSeqLengths,
                        .actual_seq_lengths_kv = actualSeqLengthsKv,
                        .num_heads = numHeads,
                        .scale_value = scaleValue,
                        .pre_tokens = preTokens,
                        .next_tokens = nextTokens,
                        .input_layout = inputLayout,
                        .num_key_value_heads = numKeyValueHeads,
                        .sparse_mode = sparseMode},
                       workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnPromptFlashAttentionV3)
