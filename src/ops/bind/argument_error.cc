#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 60;

std::string Element(const char* tensor, const char* what, int dim, int64_t got) {
  return std::string(tensor) + "." + what + "[" + std::to_string(dim) + "]=" + std::to_string(got);
}

Status CheckSizes(const char* name, const TensorView& tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const int64_t size = tensor.shape[i];
    if (size < 0) return WrongSize(name, i, size, "want >= 0");
    // An empty tensor's other sizes are bounded too.
    if (size > 1 && (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements)) {
      return Status::InvalidArgument(std::string(name) + ".shape=" + Text(tensor.shape) +
                                     ", want at most 2^60 elements");
    }
  }
  return Status::Ok();
}

Status CheckStrides(const char* name, const TensorView& tensor, bool any_innermost) {
  const int rank = tensor.shape.rank();
  if (tensor.stride.rank() != rank) {
    return Status::InvalidArgument(std::string(name) + ".stride has rank " + std::to_string(tensor.stride.rank()) +
                                   ", want " + std::to_string(rank) + " (" + name + ".shape) or 0 (dense)");
  }
  int64_t span = 1;
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    const int64_t stride = tensor.stride[i];
    if (stride < 0) return Status::InvalidArgument(Element(name, "stride", i, stride) + ", want >= 0");
    int64_t reach = 0;
    if (tensor.shape[i] > 1) {
      overflow = overflow || __builtin_mul_overflow(tensor.shape[i] - 1, stride, &reach) ||
                 __builtin_add_overflow(span, reach, &span);
    }
  }
  int64_t bytes = 0;
  if (overflow || __builtin_mul_overflow(span, static_cast<int64_t>(SizeOf(tensor.dtype)), &bytes)) {
    return Status::InvalidArgument(std::string(name) + ".stride=" + Text(tensor.stride) +
                                   ", want a span of less than 2^63 bytes");
  }
  if (!any_innermost && rank > 0 && tensor.shape[rank - 1] > 1 && tensor.stride[rank - 1] != 1) {
    return Status::InvalidArgument(Element(name, "stride", rank - 1, tensor.stride[rank - 1]) + ", want 1 (innermost)");
  }
  return Status::Ok();
}

}  // namespace

std::string Text(const Dims& dims) {
  std::string text = "[";
  for (const int64_t size : dims) {
    if (text.size() > 1) text += ",";
    text += std::to_string(size);
  }
  return text + "]";
}

Status WrongSize(const char* tensor, int dim, int64_t got, int64_t want, SizeSource source) {
  std::string from = source.text;
  if (source.dim >= 0) from += ".shape[" + std::to_string(source.dim) + "]";
  return WrongSize(tensor, dim, got, "want " + std::to_string(want) + " (" + from + ")");
}

Status WrongSize(const char* tensor, int dim, int64_t got, const std::string& rest) {
  return Status::InvalidArgument(Element(tensor, "shape", dim, got) + ", " + rest);
}

Status WrongType(const char* tensor, DType got, const std::string& want) {
  return Status::InvalidArgument(std::string(tensor) + ".dtype=" + Name(got) + ", want " + want);
}

Status CheckView(const char* name, const TensorView& tensor, bool any_innermost) {
  if (SizeOf(tensor.dtype) == 0) {
    return Status::InvalidArgument(std::string(name) + ".dtype=" + std::to_string(static_cast<int>(tensor.dtype)) +
                                   ", want a DType");
  }
  if (tensor.shape.rank() > Dims::kMaxRank) {
    return Status::InvalidArgument(std::string(name) + ".shape has more than 8 dimensions");
  }
  if (Status status = CheckSizes(name, tensor); !status.ok()) return status;
  return tensor.stride.empty() ? Status::Ok() : CheckStrides(name, tensor, any_innermost);
}

}  // namespace fa::ops
