#ifndef FA_ACLNN_SHARED_KV_OPERATION_H_
#define FA_ACLNN_SHARED_KV_OPERATION_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/sequence_lengths.h"
#include "aclnn/runtime/operands.h"
#include "fa/plan.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// An operator over original and compressed keys. Its lengths lie in tensors. So the first phase plans for the longest
/// possible lengths, and Run plans again with the lengths that the tensors then hold.
template <typename Args>
class SharedKvOperation final : public PlannedOperation<Args> {
 public:
  using Planner = Result<PlanFor<Args>> (*)(const Args&, const SharedKvOptions&, Context*);
  enum class LengthForm : uint8_t {
    kSums,      ///< [B+1], prefix sums behind a leading 0
    kUsed,      ///< [B], rows in use
    kResidual,  ///< [B], tokens after the last compressed key
  };

  SharedKvOperation(Planner planner, Names names) : PlannedOperation<Args>(Operands(), names), planner_(planner) {}

  // Adds a tensor. Parameters are added in the order of the operator's signature. A null tensor is absent, and so is an
  // optional one without elements.
  void Input(const char* name, const aclTensor* tensor, TensorView Args::*member) {
    inputs_.emplace_back(operands_.Input(name, tensor), member);
  }
  void OptionalInput(const char* name, const aclTensor* tensor, TensorView Args::*member) {
    inputs_.emplace_back(operands_.OptionalInput(name, tensor), member);
  }
  void Output(const char* name, const aclTensor* tensor, MutableTensorView Args::*member) {
    outputs_.emplace_back(operands_.OptionalOutput(name, tensor), member);
  }
  void Ignored(const char* name, const aclTensor* tensor, bool output = false) {
    operands_.Ignored(name, tensor, output);
  }
  /// Adds a tensor of lengths. @param rows  the tensor whose rows are counted  @param table  the table of its pages
  void Lengths(const char* name, const aclTensor* tensor, LengthForm form, std::span<const int64_t> Args::*member,
               TensorView Args::*rows = nullptr, TensorView Args::*table = nullptr) {
    lengths_.push_back({name, {name, tensor, operands_}, form, member, rows, table});
  }

  SharedKvOptions options;

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    for (const LengthTensor& of : lengths_) FA_RETURN_IF_ERROR(of.lengths.status());
    Args args = TensorsOf(nullptr);
    std::vector<std::vector<int64_t>> values;
    FA_RETURN_IF_ERROR(SetLengths(nullptr, args, values));
    return this->Keep(planner_(args, options, nullptr));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Args args = TensorsOf(&memory);
    std::vector<std::vector<int64_t>> values;
    FA_RETURN_IF_ERROR(SetLengths(&memory, args, values));
    const bool plan_again =
        std::any_of(lengths_.begin(), lengths_.end(), [](const LengthTensor& of) { return of.lengths.in_tensor(); });
    Status status =
        plan_again ? this->RunOtherPlan(planner_(args, options, nullptr), args, memory) : this->RunPlan(args, memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  struct LengthTensor {
    const char* name;
    SequenceLengths lengths;
    LengthForm form;
    std::span<const int64_t> Args::*member;
    TensorView Args::*rows;
    TensorView Args::*table;
  };

  [[nodiscard]] Args TensorsOf(const CallMemory* memory) const {
    Args args;
    for (const auto& [slot, member] : inputs_) args.*member = operands_.In(slot, memory);
    for (const auto& [slot, member] : outputs_) args.*member = operands_.Out(slot, memory);
    return args;
  }

  /// Sets the lengths of the arguments. `values` owns them.
  [[nodiscard]] Status SetLengths(const CallMemory* memory, Args& args,
                                  std::vector<std::vector<int64_t>>& values) const {
    values.reserve(lengths_.size());
    for (const LengthTensor& of : lengths_) {
      if (!of.lengths.in_tensor()) continue;
      const bool sums = of.form == LengthForm::kSums, packed = options.layout == Layout::kTND;
      const bool paged = of.table != nullptr && (args.*of.table).data != nullptr;
      // In the first phase, packed sequences have all their rows in use.
      if (memory == nullptr && of.form == LengthForm::kUsed && packed && !paged) continue;
      const int64_t most =
          of.rows == nullptr ? 0 : MostRows(args.*of.rows, of.table == nullptr ? nullptr : &(args.*of.table));
      std::vector<int64_t> read = of.lengths.Values(most, operands_, memory);
      if (sums) {
        if (memory != nullptr && !read.empty() && read.front() != 0) {
          return Status::InvalidArgument(std::string(of.name) + "[0]=" + std::to_string(read.front()) + ", want 0");
        }
        read.erase(read.begin());
      }
      values.push_back(std::move(read));
      args.*of.member = values.back();
    }
    return Status::Ok();
  }

  /// Returns the most rows of one sequence. If a shape does not fit its layout, returns 0, and the library refuses the
  /// call.
  [[nodiscard]] int64_t MostRows(const TensorView& tensor, const TensorView* table) const {
    const Dims& shape = tensor.shape;
    if (table != nullptr && table->data != nullptr) {
      int64_t keys = 0;
      const bool known =
          shape.rank() > 1 && table->shape.rank() > 1 && !__builtin_mul_overflow(shape[1], table->shape[1], &keys);
      // no sequence has more keys than an int32 can count
      return known ? std::clamp<int64_t>(keys, 0, std::numeric_limits<int32_t>::max()) : 0;
    }
    const int dim = options.layout == Layout::kTND ? 0 : 1;
    return shape.rank() > dim ? std::max<int64_t>(shape[dim], 0) : 0;
  }

  using Operation::operands_;

  Planner planner_;
  std::vector<std::pair<Operands::Slot, TensorView Args::*>> inputs_;
  std::vector<std::pair<Operands::Slot, MutableTensorView Args::*>> outputs_;
  std::vector<LengthTensor> lengths_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SHARED_KV_OPERATION_H_
