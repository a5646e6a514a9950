// Implements aclnnBlockSparseAttentionGrad as fa::PlanFlashAttentionGrad with a mask of blocks. The library reads a
// maximum m and a sum s per row and uses m + log(s). Here m is the lse, and s is 1.
#include <memory>
#include <optional>
#include <utility>

#include "aclnn/operations/block_sparse_call.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_block_sparse_attention_grad.h"
#include "fa/flash_attention_grad.h"

namespace fa::aclnn {
namespace {

struct BlockSparseGradSlots {
  Operands::Slot d_out, q, k, v, out, lse, mask, dq, dk, dv;
};

class BlockSparseGradOperation final : public PlannedOperation<AttentionGradArgs> {
 public:
  BlockSparseGradOperation(Operands operands, const BlockSparseGradSlots& slots, BlockSparseCall call, double scale)
      : PlannedOperation(std::move(operands), Names::kBackward,
                         {{"pair_mask", "blockSparseMask"},
                          {"k", "key"},
                          {"d_out", "dout"},
                          {"out", "attentionOut"},
                          {"softmax_max", "softmaxLse"}}),
        slots_(slots),
        call_(std::move(call)) {
    options_.layout = call_.layout;
    options_.scale = static_cast<float>(scale);
    options_.mask = call_.Rule();
  }

  [[nodiscard]] Status Prepare() {
    if (operands_.IsEmpty(slots_.dq) && operands_.IsEmpty(slots_.dk) && operands_.IsEmpty(slots_.dv)) {
      return Status::Ok();
    }
    FA_RETURN_IF_ERROR(call_.CheckLse(operands_.In(slots_.lse, nullptr).shape));
    const auto mask = call_.MaskOf(operands_.In(slots_.mask, nullptr), /*shape_only=*/true);
    if (!mask.ok()) return mask.status();
    return Keep(PlanFlashAttentionGrad(Args(nullptr, *mask), options_));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    const auto mask = call_.MaskOf(operands_.In(slots_.mask, &memory), /*shape_only=*/false);
    if (!mask.ok()) return mask.status();
    FA_RETURN_IF_ERROR(RunPlan(Args(&memory, *mask), memory));
    operands_.ScatterOutputs(memory);
    return Status::Ok();
  }

 private:
  [[nodiscard]] AttentionGradArgs Args(const CallMemory* memory, const std::optional<PairMask>& mask) const {
    static constexpr float kOne = 1;
    AttentionGradArgs args;
    args.q = operands_.In(slots_.q, memory);
    args.k = operands_.In(slots_.k, memory);
    args.v = operands_.In(slots_.v, memory);
    args.pair_mask = mask ? &*mask : nullptr;
    if (call_.packed()) {
      args.cu_q = call_.lengths_q;
      args.cu_kv = call_.lengths_kv;
    }
    args.out = operands_.In(slots_.out, memory);
    args.d_out = operands_.In(slots_.d_out, memory);
    args.softmax_max = call_.Statistics(operands_.In(slots_.lse, memory));
    const Dims& rows = args.softmax_max.shape;
    args.softmax_sum = {&kOne, DType::kF32, rows, rows.rank() == 2 ? Dims{0, 0} : Dims{0, 0, 0}};
    args.dq = operands_.Out(slots_.dq, memory);
    args.dk = operands_.Out(slots_.dk, memory);
    args.dv = operands_.Out(slots_.dv, memory);
    return args;
  }

  BlockSparseGradSlots slots_;
  BlockSparseCall call_;
  AttentionOptions options_;
};

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnBlockSparseAttentionGradGetWorkspaceSize(
    const aclTensor* dout, const aclTensor* query, const aclTensor* key, const aclTensor* value,
    const aclTensor* attentionOut, const aclTensor* softmaxLse, const aclTensor* blockSparseMaskOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* blockShapeOptional,
    const aclIntArray* actualSeqLengthsOptional, const aclIntArray* actualSeqLengthsKvOptional, char* qInputLayout,
    char* kvInputLayout, int64_t numKeyValueHeads, int64_t maskType, double scaleValue, int64_t /*preTokens*/,
    int64_t /*nextTokens*/, const aclTensor* dq, const aclTensor* dk, const aclTensor* dv, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"dout", dout},
                                            {"query", query},
                                            {"key", key},
                                            {"value", value},
                                            {"attentionOut", attentionOut},
                                            {"softmaxLse", softmaxLse},
                                            {"qInputLayout", qInputLayout},
                                            {"kvInputLayout", kvInputLayout},
                                            {"dq", dq},
                                            {"dk", dk},
                                            {"dv", dv},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (attenMaskOptional != nullptr) return Report(fa::Status::InvalidArgument("attenMask: given, want null"));
    Operands operands;
    const BlockSparseGradSlots slots{
        .d_out = operands.Input("dout", dout),
        .q = operands.Input("query", query),
        .k = operands.Input("key", key),
        .v = operands.Input("value", value),
        .out = operands.Input("attentionOut", attentionOut),
        .lse = operands.Input("softmaxLse", softmaxLse, Operands::Form::kAnyStride),
        .mask = operands.OptionalInput("blockSparseMask", blockSparseMaskOptional, Operands::Form::kAnyStride),
        .dq = operands.Output("dq", dq),
        .dk = operands.Output("dk", dk),
        .dv = operands.Output("dv", dv)};
    if (!operands.status().ok()) return Report(operands.status());
    auto call = BlockSparseCallOf({.block_shape = blockShapeOptional,
                                   .lengths_q = actualSeqLengthsOptional,
                                   .lengths_kv = actualSeqLengthsKvOptional,
                                   .q_layout = qInputLayout,
                                   .kv_layout = kvInputLayout,
                                   .heads_kv = numKeyValueHeads,
                                   .mask_type = maskType},
                                  operands.In(slots.q, nullptr), operands.In(slots.k, nullptr));
    if (!call.ok()) return Report(call.status());
    auto operation =
        std::make_shared<BlockSparseGradOperation>(std::move(operands), slots, std::move(*call), scaleValue);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnBlockSparseAttentionGrad)
