// Implements aclnnBlockSparseAttention as fa::PlanInferAttention with a mask of blocks.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "aclnn/operations/block_sparse_call.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_block_sparse_attention.h"
#include "fa/infer_attention.h"

namespace fa::aclnn {
namespace {

struct BlockSparseSlots {
  Operands::Slot q, k, v, mask, out, lse;
};

class BlockSparseOperation final : public PlannedOperation<InferAttentionArgs> {
 public:
  BlockSparseOperation(Operands operands, const BlockSparseSlots& slots, BlockSparseCall call, double scale)
      : PlannedOperation(std::move(operands), Names::kInfer, {{"pair_mask", "blockSparseMask"}}),
        slots_(slots),
        call_(std::move(call)),
        options_{.layout = call_.layout,
                 .scale = static_cast<float>(scale),
                 .lse_without_keys = std::numeric_limits<float>::infinity()} {}

  [[nodiscard]] Status Prepare() {
    if (operands_.IsEmpty(slots_.out)) return Status::Ok();
    if (slots_.lse != Operands::kAbsent) {
      FA_RETURN_IF_ERROR(call_.CheckLse(operands_.Out(slots_.lse, nullptr).shape));
    }
    const auto mask = call_.MaskOf(operands_.In(slots_.mask, nullptr), /*shape_only=*/true);
    if (!mask.ok()) return mask.status();
    const TensorView k = operands_.In(slots_.k, nullptr), v = operands_.In(slots_.v, nullptr);
    const DType want = operands_.In(slots_.q, nullptr).dtype;
    for (const auto& [name, view] : {std::pair{"key", &k}, {"value", &v}}) {
      if (view->dtype == want) continue;
      return Status::InvalidArgument(std::string(name) + ".dtype=" + Name(view->dtype) + ", want " + Name(want) +
                                     " (query.dtype)");
    }
    return Keep(PlanInferAttention(Args(nullptr, k, v, *mask), options_));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    if (!planned()) return Status::Ok();
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    const auto mask = call_.MaskOf(operands_.In(slots_.mask, &memory), /*shape_only=*/false);
    if (!mask.ok()) return mask.status();
    const TensorView k = operands_.In(slots_.k, &memory), v = operands_.In(slots_.v, &memory);
    FA_RETURN_IF_ERROR(RunPlan(Args(&memory, k, v, *mask), memory));
    operands_.ScatterOutputs(memory);
    return Status::Ok();
  }

 private:
  [[nodiscard]] InferAttentionArgs Args(const CallMemory* memory, const TensorView& k, const TensorView& v,
                                        const std::optional<PairMask>& mask) const {
    InferAttentionArgs args;
    args.q = operands_.In(slots_.q, memory);
    args.k = {&k, 1};
    args.v = {&v, 1};
    (call_.packed() ? args.cu_q : args.lengths_q) = call_.lengths_q;
    (call_.packed() ? args.cu_kv : args.lengths_kv) = call_.lengths_kv;
    args.pair_mask = mask ? &*mask : nullptr;
    args.out = operands_.Out(slots_.out, memory);
    if (slots_.lse != Operands::kAbsent) args.lse = call_.Statistics(operands_.Out(slots_.lse, memory));
    return args;
  }

  BlockSparseSlots slots_;
  BlockSparseCall call_;
  InferAttentionOptions options_;
};

Status RefusedIfGiven(const char* name, const void* pointer) {
  return pointer == nullptr ? Status::Ok() : Status::InvalidArgument(std::string(name) + ": given, want null");
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnBlockSparseAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* blockSparseMaskOptional,
    const aclTensor* attenMaskOptional, const aclIntArray* blockShapeOptional,
    const aclIntArray* actualSeqLengthsOptional, const aclIntArray* actualSeqLengthsKvOptional,
    const aclTensor* blockTableOptional, char* qInputLayout, char* kvInputLayout, int64_t numKeyValueHeads,
    int64_t maskType, double scaleValue, int64_t /*innerPrecise*/, int64_t blockSize, int64_t /*preTokens*/,
    int64_t /*nextTokens*/, int64_t softmaxLseFlag, const aclTensor* attentionOut, const aclTensor* softmaxLseOptional,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const void* lse = softmaxLseFlag == 1 ? softmaxLseOptional : attentionOut;  // without the flag, lse may be null
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"value", value},
                                            {"qInputLayout", qInputLayout},
                                            {"kvInputLayout", kvInputLayout},
                                            {"attentionOut", attentionOut},
                                            {"softmaxLse", lse},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    for (const fa::Status& status :
         {RefusedIfGiven("attenMask", attenMaskOptional), RefusedIfGiven("blockTable", blockTableOptional)}) {
      if (!status.ok()) return Report(status);
    }
    if (blockSize != 0) {
      return Report(fa::Status::InvalidArgument("blockSize=" + std::to_string(blockSize) + ", want 0"));
    }
    if (softmaxLseFlag != 0 && softmaxLseFlag != 1) {
      return Report(fa::Status::InvalidArgument("softmaxLseFlag=" + std::to_string(softmaxLseFlag) + ", want 0 or 1"));
    }
    Operands operands;
    BlockSparseSlots slots{
        .q = operands.Input("query", query),
        .k = operands.Input("key", key),
        .v = operands.Input("value", value),
        .mask = operands.OptionalInput("blockSparseMask", blockSparseMaskOptional, Operands::Form::kAnyStride),
        .out = operands.Output("attentionOut", attentionOut),
        .lse = Operands::kAbsent};
    if (softmaxLseFlag == 1) {
      slots.lse = operands.Output("softmaxLse", softmaxLseOptional, Operands::Form::kAnyStride);
    } else {
      operands.Ignored("softmaxLse", softmaxLseOptional, /*output=*/true);
    }
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
    auto operation = std::make_shared<BlockSparseOperation>(std::move(operands), slots, std::move(*call), scaleValue);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnBlockSparseAttention)
