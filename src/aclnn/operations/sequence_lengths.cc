#include "aclnn/operations/sequence_lengths.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "aclnn/runtime/descriptors.h"

namespace fa::aclnn {

std::vector<int64_t> IntegersOf(const TensorView& tensor) {
  const auto count = static_cast<size_t>(tensor.shape[0]);
  if (tensor.dtype == DType::kI64) {
    const auto* values = static_cast<const int64_t*>(tensor.data);
    return {values, values + count};
  }
  const auto* values = static_cast<const int32_t*>(tensor.data);
  return {values, values + count};
}

int64_t RowsPerSequence(const Dims& shape, Layout layout) {
  const int dim = layout == Layout::kTND ? 0 : 1;
  return shape.rank() > dim ? std::max<int64_t>(shape[dim], 0) : 0;
}

int64_t MostPagedKeys(const Dims& pages, const Dims& table) {
  int64_t keys = 0;
  if (pages.rank() < 2 || table.rank() < 2 || __builtin_mul_overflow(pages[1], table[1], &keys)) return 0;
  // no sequence has more keys than an int32 can count
  return std::clamp<int64_t>(keys, 0, std::numeric_limits<int32_t>::max());
}

Status DropLeadingZero(const char* name, bool known, int64_t rows, std::vector<int64_t>& sums) {
  if (sums.empty()) return Status::InvalidArgument(std::string(name) + ": has no entries, want [B+1]");
  if (known && sums[0] != 0) {
    return Status::InvalidArgument(std::string(name) + "[0]=" + std::to_string(sums[0]) + ", want 0");
  }
  if (sums.size() == 1 && rows > 0) {
    return Status::InvalidArgument(std::string(name) + " has 1 entry, want [B+1] for " + std::to_string(rows) +
                                   " rows");
  }
  sums.erase(sums.begin());
  return Status::Ok();
}

SequenceLengths::SequenceLengths(const char* name, const aclIntArray* array) {
  auto values = ValuesOf(name, array);
  status_ = values.status();
  if (values.ok()) values_ = std::move(*values);
}

SequenceLengths::SequenceLengths(const char* name, const aclTensor* tensor, Operands& operands)
    : slot_(operands.OptionalInput(name, tensor, Operands::Form::kFlat)) {
  if (!in_tensor()) return;
  const TensorView list = operands.In(slot_, nullptr);
  if (list.dtype != DType::kI32 && list.dtype != DType::kI64) {
    status_ = Status::InvalidArgument(std::string(name) + ".dtype=" + Name(list.dtype) + ", want i32 or i64");
    return;
  }
  // The first phase makes a list of as many lengths. No number of sequences exceeds what an int32 can count.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (list.shape.rank() == 0 || list.shape[0] <= kMost) return;
  status_ = Status::InvalidArgument(std::string(name) + " has " + std::to_string(list.shape[0]) +
                                    " entries, want at most " + std::to_string(kMost));
}

std::vector<int64_t> SequenceLengths::Values(int64_t most, const Operands& operands, const CallMemory* memory) const {
  if (!in_tensor()) return values_;
  const TensorView tensor = operands.In(slot_, memory);
  if (memory != nullptr) return IntegersOf(tensor);
  return std::vector<int64_t>(static_cast<size_t>(tensor.shape[0]), most);
}

}  // namespace fa::aclnn
