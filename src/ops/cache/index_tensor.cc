#include "ops/cache/index_tensor.h"

#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {

IndexTensor::IndexTensor(const void* data, DType dtype, const Dims& shape, const Dims& stride)
    : data_(static_cast<const std::byte*>(data)), wide_(dtype == DType::kI64) {
  const Dims filled = layout::FilledStride(shape, stride);
  for (int i = 0; i < filled.rank() && i < 2; ++i) stride_[i] = filled[i] * static_cast<int64_t>(SizeOf(dtype));
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
