#include "ops/cache/index_tensor.h"

#include <algorithm>
#include <limits>
#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

template <typename Index>
int64_t MaxOf(const std::byte* data, int64_t stride, int64_t count) {
  Index most = std::numeric_limits<Index>::min();
  for (int64_t i = 0; i < count; ++i) {
    Index value = 0;
    std::memcpy(&value, data + i * stride, sizeof value);
    most = std::max(most, value);
  }
  return most;
}

}  // namespace

IndexTensor::IndexTensor(const void* data, DType dtype, const Dims& shape, const Dims& stride)
    : data_(static_cast<const std::byte*>(data)), wide_(dtype == DType::kI64) {
  const Dims filled = layout::FilledStride(shape, stride);
  for (int i = 0; i < filled.rank() && i < 2; ++i) stride_[i] = filled[i] * static_cast<int64_t>(SizeOf(dtype));
}

int64_t IndexTensor::Max(int64_t count) const {
  if (!wide_) return stride_[0] == 4 ? MaxOf<int32_t>(data_, 4, count) : MaxOf<int32_t>(data_, stride_[0], count);
  return stride_[0] == 8 ? MaxOf<int64_t>(data_, 8, count) : MaxOf<int64_t>(data_, stride_[0], count);
}

Status CheckIndexTensor(const char* name, const TensorView& tensor, int rank) {
  if (tensor.data == nullptr && tensor.shape.empty()) return Status::InvalidArgument(Arg(name).Says("missing"));
  if (tensor.dtype != DType::kI32 && tensor.dtype != DType::kI64) return WrongType(name, tensor.dtype, "i32 or i64");
  if (tensor.shape.rank() != rank) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want " + std::to_string(rank) +
                                   (rank == 1 ? " dimension" : " dimensions"));
  }
  return CheckView(name, tensor, /*any_innermost=*/true);
}

}  // namespace fa::ops
