#ifndef FA_ACLNN_MEMBERWISE_OPERATION_H_
#define FA_ACLNN_MEMBERWISE_OPERATION_H_

#include <functional>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/names.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/runtime/operands.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// A planned operation, each of whose tensors is one member of the library's arguments.
template <typename Args, typename Options>
class MemberwiseOperation : public PlannedOperation<Args> {
 public:
  using Form = Operands::Form;
  using Planner = Result<PlanFor<Args>> (*)(const Args&, const Options&, Context*);

  // Adds a tensor. Parameters are added in the order of the operator's signature. A null tensor is absent, and so is an
  // optional tensor without elements.
  void Input(const char* name, const aclTensor* tensor, TensorView Args::*member, Form form = Form::kRows) {
    inputs_.emplace_back(operands_.Input(name, tensor, form), member);
  }
  void OptionalInput(const char* name, const aclTensor* tensor, TensorView Args::*member, Form form = Form::kRows) {
    inputs_.emplace_back(operands_.OptionalInput(name, tensor, form), member);
  }
  void Output(const char* name, const aclTensor* tensor, MutableTensorView Args::*member, Form form = Form::kRows) {
    outputs_.emplace_back(operands_.Output(name, tensor, form), member);
  }
  void OptionalOutput(const char* name, const aclTensor* tensor, MutableTensorView Args::*member) {
    outputs_.emplace_back(operands_.OptionalOutput(name, tensor), member);
  }
  void Ignored(const char* name, const aclTensor* tensor, bool output = false) {
    operands_.Ignored(name, tensor, output);
  }
  /// Adds an output that the call wants; otherwise ignores the tensor.
  void OutputIf(bool wanted, const char* name, const aclTensor* tensor, MutableTensorView Args::*member) {
    if (wanted) {
      Output(name, tensor, member);
    } else {
      Ignored(name, tensor, /*output=*/true);
    }
  }

  /// Changes the library's tensors: `adjust` runs before every plan and every run. In the first phase the memory is
  /// null.
  void Adjust(std::function<void(Args&, const CallMemory*)> adjust) { adjusts_.push_back(std::move(adjust)); }

  Options options;

 protected:
  using Operation::operands_;

  /// @param own  the names of parameters that only this function has
  MemberwiseOperation(Planner planner, Names names, std::vector<Rename> own = {})
      : PlannedOperation<Args>(Operands(), names, std::move(own)), planner_(planner) {}

  [[nodiscard]] Args TensorsOf(const CallMemory* memory) const {
    Args args;
    for (const auto& [slot, member] : inputs_) args.*member = operands_.In(slot, memory);
    for (const auto& [slot, member] : outputs_) args.*member = operands_.Out(slot, memory);
    for (const auto& adjust : adjusts_) adjust(args, memory);
    return args;
  }
  [[nodiscard]] Status KeepPlanOf(const Args& args) { return this->Keep(planner_(args, options, nullptr)); }
  /// Runs the kept plan or, with `plan_again`, a plan of the lengths that are now known. Then copies outputs to the
  /// caller's tensors.
  [[nodiscard]] Status RunAndScatter(const Args& args, const CallMemory& memory, bool plan_again = false) const {
    FA_RETURN_IF_ERROR(plan_again ? this->RunOtherPlan(planner_(args, options, nullptr), args, memory)
                                  : this->RunPlan(args, memory));
    operands_.ScatterOutputs(memory);
    return Status::Ok();
  }

 private:
  Planner planner_;
  std::vector<std::pair<Operands::Slot, TensorView Args::*>> inputs_;
  std::vector<std::pair<Operands::Slot, MutableTensorView Args::*>> outputs_;
  std::vector<std::function<void(Args&, const CallMemory*)>> adjusts_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_MEMBERWISE_OPERATION_H_
