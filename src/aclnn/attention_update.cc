// Implements aclnnAttentionUpdate with fa::PlanMergeByLse.
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnnop/aclnn_attention_update.h"
#include "fa/merge_by_lse.h"

namespace fa::aclnn {
namespace {

using Form = Operands::Form;
using Slot = Operands::Slot;

class UpdateOperation final : public PlannedOperation<MergeByLseArgs> {
 public:
  UpdateOperation() : PlannedOperation(Operands(), Names::kMergeLse) {}

  void Lse(const aclTensorList* list) { AddList("lse", list, &lse_); }
  void LocalOut(const aclTensorList* list) { AddList("localOut", list, &local_out_); }
  void Outputs(const aclTensor* out, const aclTensor* lse) {
    out_ = operands_.Output("out", out, Form::kAnyStride);
    lse_out_ = operands_.Output("lseOut", lse, Form::kAnyStride);
  }

  [[nodiscard]] Status Prepare() {
    if (!status_.ok()) return status_;
    if (!operands_.status().ok()) return operands_.status();
    constexpr MergeByLseOptions kOptions = {.lse_without_keys = std::numeric_limits<float>::infinity()};
    const Lists lists(*this, nullptr);
    return Keep(PlanMergeByLse(lists.args, kOptions));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    const Lists lists(*this, &memory);
    return RunPlan(lists.args, memory);
  }

 private:
  // The arguments of a call, and the lists to which the arguments point.
  struct Lists {
    Lists(const UpdateOperation& operation, const CallMemory* memory) {
      for (const Slot slot : operation.lse_) lse.push_back(operation.operands_.In(slot, memory));
      for (const Slot slot : operation.local_out_) local_out.push_back(operation.operands_.In(slot, memory));
      args.lse = lse;
      args.local_out = local_out;
      args.out = operation.operands_.Out(operation.out_, memory);
      args.lse_out = operation.operands_.Out(operation.lse_out_, memory);
    }
    std::vector<TensorView> lse, local_out;
    MergeByLseArgs args;
  };

  void AddList(const std::string& name, const aclTensorList* list, std::vector<Slot>* slots) {
    const auto tensors = TensorsOf(name.c_str(), list);
    if (!tensors.ok()) {
      if (status_.ok()) status_ = tensors.status();
      return;
    }
    for (const aclTensor* tensor : *tensors) {
      names_.push_back(name + "[" + std::to_string(slots->size()) + "]");
      slots->push_back(operands_.Input(names_.back().c_str(), tensor, Form::kAnyStride));
    }
  }

  Status status_;
  std::deque<std::string> names_;  // the texts to which names of operands point
  std::vector<Slot> lse_, local_out_;
  Slot out_ = Operands::kAbsent, lse_out_ = Operands::kAbsent;
};

Status CheckUpdateType(int64_t update_type, const aclTensor* lse_out) {
  if (update_type != 0 && update_type != 1) {
    return Status::InvalidArgument("updateType=" + std::to_string(update_type) + ", want 0 or 1");
  }
  if (update_type == 0 && lse_out != nullptr) return Status::InvalidArgument("lseOut: given, want null (updateType 0)");
  if (update_type == 1 && lse_out == nullptr) {
    return Status::InvalidArgument("lseOut: missing, want float32 [M] (updateType 1)");
  }
  return Status::Ok();
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnAttentionUpdateGetWorkspaceSize(const aclTensorList* lse, const aclTensorList* localOut,
                                                 int64_t updateType, aclTensor* out, aclTensor* lseOutOptional,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull(
        {{"lse", lse}, {"localOut", localOut}, {"out", out}, {"workspaceSize", workspaceSize}, {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (fa::Status status = CheckUpdateType(updateType, lseOutOptional); !status.ok()) return Report(status);
    auto operation = std::make_shared<UpdateOperation>();
    operation->Lse(lse);
    operation->LocalOut(localOut);
    operation->Outputs(out, lseOutOptional);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

aclnnStatus aclnnAttentionUpdate(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}
