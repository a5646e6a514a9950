#ifndef FA_ACLNN_TENSOR_OPERATION_H_
#define FA_ACLNN_TENSOR_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aclnn/operations/memberwise_operation.h"
#include "aclnn/operations/names.h"
#include "aclnn/runtime/strided_copy.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// An operator whose arguments are tensors only. Each of the program's tensors is one tensor of the library, with its
/// own strides.
template <typename Args, typename Options>
class TensorOperation final : public MemberwiseOperation<Args, Options> {
  using Base = MemberwiseOperation<Args, Options>;

 public:
  /// @param own  the names of parameters that only this function has
  TensorOperation(typename Base::Planner planner, Names names, std::vector<Rename> own = {})
      : Base(planner, names, std::move(own)) {}

  /// Returns the error of the first tensor that cannot be used.
  [[nodiscard]] const Status& status() const { return operands_.status(); }

  /// Changes which elements an input has: its first element lies `offset` elements further, and its outermost stride is
  /// `stride`.
  void Move(TensorView Args::*member, int64_t offset, int64_t stride) {
    this->Adjust([=](Args& args, const CallMemory* memory) {
      TensorView& view = args.*member;
      if (memory != nullptr && view.data != nullptr) {
        view.data = static_cast<const std::byte*>(view.data) + offset * static_cast<int64_t>(SizeOf(view.dtype));
      }
      if (view.stride.empty()) view.stride = DenseStride(view.shape);
      if (!view.stride.empty()) view.stride[0] = stride;
    });
  }

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    return this->KeepPlanOf(this->TensorsOf(nullptr));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    return this->RunAndScatter(this->TensorsOf(&memory), memory);
  }

 private:
  using Base::operands_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_TENSOR_OPERATION_H_
