#include "ops/bind/argument_error.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace fa::ops {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 60;

Status CheckSizes(const char* name, const TensorView& tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const int64_t size = tensor.shape[i];
    if (size < 0) return WrongSize(name, i, size, "want >= 0");
    // Sizes of 0 are left out of the product, so that the product of the other sizes is bounded too.
    if (size > 1 && (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements)) {
      return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want at most 2^60 elements");
    }
  }
  return Status::Ok();
}

Status WrongStride(const char* name, int dim, int64_t got, const char* want) {
  return Status::InvalidArgument(Arg(name, ".stride", At(dim)).Is(std::to_string(got)) + ", want " + want);
}

Status CheckStrides(const char* name, const TensorView& tensor, bool any_innermost) {
  const int rank = tensor.shape.rank();
  if (tensor.stride.rank() != rank) {
    return Status::InvalidArgument(Arg(name, ".stride").Has("rank " + std::to_string(tensor.stride.rank())) +
                                   ", want " + std::to_string(rank) + " (" + Arg(name, ".shape") + ") or 0 (dense)");
  }
  int64_t span = 1;
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    const int64_t stride = tensor.stride[i];
    if (stride < 0) return WrongStride(name, i, stride, ">= 0");
    int64_t reach = 0;
    if (tensor.shape[i] > 1) {
      overflow = overflow || __builtin_mul_overflow(tensor.shape[i] - 1, stride, &reach) ||
                 __builtin_add_overflow(span, reach, &span);
    }
  }
  int64_t bytes = 0;
  if (overflow || __builtin_mul_overflow(span, static_cast<int64_t>(SizeOf(tensor.dtype)), &bytes)) {
    return Status::InvalidArgument(Arg(name, ".stride").Is(Text(tensor.stride)) +
                                   ", want a span of less than 2^63 bytes");
  }
  if (!any_innermost && rank > 0 && tensor.shape[rank - 1] > 1 && tensor.stride[rank - 1] != 1) {
    return WrongStride(name, rank - 1, tensor.stride[rank - 1], "1 (innermost)");
  }
  return Status::Ok();
}

}  // namespace

ErrorText Arg(std::string_view name, std::string_view member, std::string_view index) {
  const size_t element = std::min(name.find('['), name.size());
  return ErrorText::Argument(name.substr(0, element), std::string(name.substr(element)).append(member), index);
}

std::string At(int64_t index) { return "[" + std::to_string(index) + "]"; }

std::string Text(float number) {
  std::array<char, 32> text;  // longer than the text of any float
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

std::string Text(const Dims& dims) {
  std::string text = "[";
  for (const int64_t size : dims) {
    if (text.size() > 1) text += ",";
    text += std::to_string(size);
  }
  return text + "]";
}

Status WrongSize(const char* tensor, int dim, int64_t got, int64_t want, SizeSource source) {
  const ErrorText from = source.dim >= 0                       ? Arg(source.text, ".shape", At(source.dim))
                         : source.dim == SizeSource::kArgument ? Arg(source.text)
                                                               : ErrorText(source.text);
  return WrongSize(tensor, dim, got, "want " + std::to_string(want) + " (" + from + ")");
}

Status WrongSize(const char* tensor, int dim, int64_t got, const Words& rest) {
  return Status::InvalidArgument(Arg(tensor, ".shape", At(dim)).Is(std::to_string(got)) + ", " + rest.text);
}

Status WrongType(const char* tensor, DType got, const Words& want) {
  return Status::InvalidArgument(Arg(tensor, ".dtype").Is(Name(got)) + ", want " + want.text);
}

ErrorText TypeOf(const char* tensor, DType dtype) {
  return std::string(Name(dtype)) + " (" + Arg(tensor, ".dtype") + ")";
}

Status CheckView(const char* name, const TensorView& tensor, bool any_innermost) {
  if (SizeOf(tensor.dtype) == 0) {
    return Status::InvalidArgument(Arg(name, ".dtype").Is(std::to_string(static_cast<int>(tensor.dtype))) +
                                   ", want a DType");
  }
  if (tensor.shape.rank() > Dims::kMaxRank) {
    return Status::InvalidArgument(Arg(name, ".shape").Has("more than 8 dimensions"));
  }
  FA_RETURN_IF_ERROR(CheckSizes(name, tensor));
  return tensor.stride.empty() ? Status::Ok() : CheckStrides(name, tensor, any_innermost);
}

}  // namespace fa::ops
