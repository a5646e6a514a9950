#include "aclnn/operations/sequence_statistics.h"

#include <algorithm>
#include <string>

#include "aclnn/runtime/strided_copy.h"
#include "fa/overlap.h"

namespace fa::aclnn {
namespace {

constexpr int64_t kCopies = 8;

/// Finds where unit u of a tensor [T,N,8] begins. A unit is the eight copies of one value.
class Units {
 public:
  explicit Units(const TensorView& blocks)
      : heads_(blocks.shape[1]), stride_(blocks.stride.empty() ? DenseStride(blocks.shape) : blocks.stride) {}

  [[nodiscard]] int64_t Offset(int64_t unit) const { return unit / heads_ * stride_[0] + unit % heads_ * stride_[1]; }
  [[nodiscard]] int64_t copy_stride() const { return stride_[2]; }

 private:
  int64_t heads_;
  Dims stride_;
};

Status Check(const std::string& name, const TensorView& blocks, SequenceStatistics::Role role, const Dims& want) {
  const auto invalid = [&](const std::string& what) { return Status::InvalidArgument(name + what); };
  if (blocks.dtype != DType::kF32) return invalid(std::string(".dtype=") + Name(blocks.dtype) + ", want f32");
  if (blocks.shape.rank() != want.rank()) {
    return invalid(".shape: " + std::to_string(blocks.shape.rank()) + " dimensions, want [T,N,8]");
  }
  for (int i = 0; i < want.rank(); ++i) {
    if (blocks.shape[i] == want[i]) continue;
    return invalid(".shape[" + std::to_string(i) + "]=" + std::to_string(blocks.shape[i]) + ", want " +
                   std::to_string(want[i]) + " ([T,N,8] of query)");
  }
  if (std::any_of(blocks.stride.begin(), blocks.stride.end(), [](int64_t stride) { return stride < 0; })) {
    return invalid(".stride: want >= 0");
  }
  if (role == SequenceStatistics::Role::kWritten && OverlapsItself(blocks)) {
    return invalid(".stride: want strides that keep its elements apart");
  }
  return Status::Ok();
}

}  // namespace

Status SequenceStatistics::Bind(const TensorView& query, const Blocks& blocks, Role role, std::span<const int64_t> cu_q,
                                Operands& operands) {
  if (query.shape.rank() != 3) {
    return Status::InvalidArgument("query.shape: " + std::to_string(query.shape.rank()) + " dimensions, want [T,N,D]");
  }
  cu_q_ = cu_q;
  tokens_ = query.shape[0];
  heads_ = query.shape[1];
  int64_t bytes = 0;
  if (tokens_ < 0 || heads_ < 0 || __builtin_mul_overflow(tokens_, heads_, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(sizeof(float)), &bytes)) {
    return Status::InvalidArgument("query.shape: want sizes >= 0 and fewer than 2^60 elements");
  }
  const Dims want = {tokens_, heads_, kCopies};
  FA_RETURN_IF_ERROR(Check("softmaxMax", blocks.max, role, want));
  FA_RETURN_IF_ERROR(Check("softmaxSum", blocks.sum, role, want));
  max_at_ = operands.Book(static_cast<size_t>(bytes));
  sum_at_ = operands.Book(static_cast<size_t>(bytes));
  return Status::Ok();
}

MutableTensorView SequenceStatistics::Max(const CallMemory* memory) const {
  return Operands::Booked(DType::kF32, {tokens_, heads_}, max_at_, memory);
}

MutableTensorView SequenceStatistics::Sum(const CallMemory* memory) const {
  return Operands::Booked(DType::kF32, {tokens_, heads_}, sum_at_, memory);
}

void SequenceStatistics::WriteBlocks(const MutableTensorView& max, const MutableTensorView& sum,
                                     const CallMemory& memory) const {
  Write(Max(&memory), max);
  Write(Sum(&memory), sum);
}

void SequenceStatistics::ReadBlocks(const Blocks& blocks, const CallMemory& memory) const {
  Read(blocks.max, Max(&memory));
  Read(blocks.sum, Sum(&memory));
}

template <typename Visit>
void SequenceStatistics::ForEachValue(const Visit& visit) const {
  int64_t unit = 0;
  int64_t begin = 0;
  for (const int64_t end : cu_q_) {
    for (int64_t n = 0; n < heads_; ++n) {
      for (int64_t t = begin; t < end; ++t) visit(unit++, t * heads_ + n);
    }
    begin = end;
  }
  for (; unit < tokens_ * heads_; ++unit) visit(unit, unit);
}

void SequenceStatistics::Write(const TensorView& rows, const MutableTensorView& blocks) const {
  const Units units(blocks);
  const auto* values = static_cast<const float*>(rows.data);
  auto* data = static_cast<float*>(blocks.data);
  ForEachValue([&](int64_t unit, int64_t index) {
    float* at = data + units.Offset(unit);
    for (int64_t copy = 0; copy < kCopies; ++copy) at[copy * units.copy_stride()] = values[index];
  });
}

void SequenceStatistics::Read(const TensorView& blocks, const MutableTensorView& rows) const {
  const Units units(blocks);
  const auto* data = static_cast<const float*>(blocks.data);
  auto* values = static_cast<float*>(rows.data);
  ForEachValue([&](int64_t unit, int64_t index) { values[index] = data[units.Offset(unit)]; });
}

}  // namespace fa::aclnn
