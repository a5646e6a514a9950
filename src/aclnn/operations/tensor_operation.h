#ifndef FA_ACLNN_TENSOR_OPERATION_H_
#define FA_ACLNN_TENSOR_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/names.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/strided_copy.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// An operator whose arguments are tensors only. Each of the program's tensors is one tensor of the library, with its
/// own strides.
template <typename Args, typename Options>
class TensorOperation final : public PlannedOperation<Args> {
 public:
  using Form = Operands::Form;
  using Planner = Result<PlanFor<Args>> (*)(const Args&, const Options&, Context*);

  /// @param own  the names of parameters that only this function has
  TensorOperation(Planner planner, Names names, std::vector<Rename> own = {})
      : PlannedOperation<Args>(Operands(), names, std::move(own)), planner_(planner) {}

  // Adds a tensor. Parameters are added in the order of the operator's signature. A null tensor is absent, and so is an
  // optional one without elements.
  void Input(const char* name, const aclTensor* tensor, Form form, TensorView Args::*member) {
    inputs_.emplace_back(operands_.Input(name, tensor, form), member);
  }
  void OptionalInput(const char* name, const aclTensor* tensor, Form form, TensorView Args::*member) {
    inputs_.emplace_back(operands_.OptionalInput(name, tensor, form), member);
  }
  void Output(const char* name, const aclTensor* tensor, Form form, MutableTensorView Args::*member) {
    outputs_.emplace_back(operands_.Output(name, tensor, form), member);
  }
  void Ignored(const char* name, const aclTensor* tensor, bool output = false) {
    operands_.Ignored(name, tensor, output);
  }
  /// Returns the error of the first tensor that cannot be used.
  [[nodiscard]] const Status& status() const { return operands_.status(); }

  /// Changes which elements an input has: its first element lies `offset` elements further, and its outermost stride is
  /// `stride`.
  void Move(TensorView Args::*member, int64_t offset, int64_t stride) { moves_.push_back({member, offset, stride}); }

  Options options;

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    return this->Keep(planner_(TensorsOf(nullptr), options, nullptr));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    return this->RunPlan(TensorsOf(&memory), memory);
  }

 private:
  struct Moved {
    TensorView Args::*member;
    int64_t offset, stride;
  };

  [[nodiscard]] Args TensorsOf(const CallMemory* memory) const {
    Args args;
    for (const auto& [slot, member] : inputs_) args.*member = operands_.In(slot, memory);
    for (const auto& [slot, member] : outputs_) args.*member = operands_.Out(slot, memory);
    for (const Moved& moved : moves_) {
      TensorView& view = args.*moved.member;
      if (memory != nullptr && view.data != nullptr) {
        view.data = static_cast<const std::byte*>(view.data) + moved.offset * static_cast<int64_t>(SizeOf(view.dtype));
      }
      if (view.stride.empty()) view.stride = DenseStride(view.shape);
      if (!view.stride.empty()) view.stride[0] = moved.stride;
    }
    return args;
  }

  using PlannedOperation<Args>::operands_;
  Planner planner_;
  std::vector<std::pair<Operands::Slot, TensorView Args::*>> inputs_;
  std::vector<std::pair<Operands::Slot, MutableTensorView Args::*>> outputs_;
  std::vector<Moved> moves_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_TENSOR_OPERATION_H_
