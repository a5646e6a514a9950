#ifndef FA_ACLNN_SHARED_KV_OPERATION_H_
#define FA_ACLNN_SHARED_KV_OPERATION_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/memberwise_operation.h"
#include "aclnn/operations/names.h"
#include "aclnn/operations/sequence_lengths.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// An operator over original and compressed keys. The operator's lengths lie in tensors. So the first phase plans for
/// the longest possible lengths, and Run plans again with the lengths that the tensors then hold.
template <typename Args>
class SharedKvOperation final : public MemberwiseOperation<Args, SharedKvOptions> {
  using Base = MemberwiseOperation<Args, SharedKvOptions>;

 public:
  enum class LengthForm : uint8_t {
    kSums,      ///< [B+1], prefix sums behind a leading 0
    kUsed,      ///< [B], rows in use
    kResidual,  ///< [B], tokens after the last compressed key
  };

  SharedKvOperation(typename Base::Planner planner, Names names) : Base(planner, names) {}

  /// Adds a tensor of lengths. @param rows  the tensor whose rows are counted  @param table  the block table, if those
  /// rows lie in pages
  void Lengths(const char* name, const aclTensor* tensor, LengthForm form, std::span<const int64_t> Args::*member,
               TensorView Args::*rows = nullptr, TensorView Args::*table = nullptr) {
    lengths_.push_back({name, {name, tensor, operands_}, form, member, rows, table});
  }

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    for (const LengthTensor& of : lengths_) FA_RETURN_IF_ERROR(of.lengths.status());
    Args args = this->TensorsOf(nullptr);
    std::vector<std::vector<int64_t>> values;
    FA_RETURN_IF_ERROR(SetLengths(nullptr, args, values));
    return this->KeepPlanOf(args);
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Args args = this->TensorsOf(&memory);
    std::vector<std::vector<int64_t>> values;
    FA_RETURN_IF_ERROR(SetLengths(&memory, args, values));
    const bool plan_again =
        std::any_of(lengths_.begin(), lengths_.end(), [](const LengthTensor& of) { return of.lengths.in_tensor(); });
    return this->RunAndScatter(args, memory, plan_again);
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

  /// Sets the lengths of the arguments. `values` owns the lengths.
  [[nodiscard]] Status SetLengths(const CallMemory* memory, Args& args,
                                  std::vector<std::vector<int64_t>>& values) const {
    values.reserve(lengths_.size());
    for (const LengthTensor& of : lengths_) {
      if (!of.lengths.in_tensor()) continue;
      const bool packed = this->options.layout == Layout::kTND;
      const bool paged = of.table != nullptr && (args.*of.table).data != nullptr;
      // In the first phase, packed sequences have all their rows in use.
      if (memory == nullptr && of.form == LengthForm::kUsed && packed && !paged) continue;
      const int64_t most =
          of.rows == nullptr ? 0 : MostRows(args.*of.rows, of.table == nullptr ? nullptr : &(args.*of.table));
      std::vector<int64_t> read = of.lengths.Values(most, operands_, memory);
      if (of.form == LengthForm::kSums) {
        // the library checks the number of entries
        FA_RETURN_IF_ERROR(DropLeadingZero(of.name, /*known=*/memory != nullptr, /*rows=*/0, read));
      }
      values.push_back(std::move(read));
      args.*of.member = values.back();
    }
    return Status::Ok();
  }

  /// Returns the most rows of one sequence. If a shape does not fit its layout, returns 0, and the library refuses the
  /// call.
  [[nodiscard]] int64_t MostRows(const TensorView& tensor, const TensorView* table) const {
    if (table != nullptr && table->data != nullptr) return MostPagedKeys(tensor.shape, table->shape);
    return RowsPerSequence(tensor.shape, this->options.layout);
  }

  using Base::operands_;

  std::vector<LengthTensor> lengths_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SHARED_KV_OPERATION_H_
