#include "ops/bind/planned_tensors.h"

#include <algorithm>
#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

// Returns whether two lists of strides mean the same. An empty list means dense strides, and the stride of a dimension
// of one element does not matter.
bool EquivalentStrides(const Dims& shape, const Dims& got, const Dims& planned) {
  if (got == planned) return true;
  if (!got.empty() && got.rank() != shape.rank()) return false;
  const Dims a = layout::FilledStride(shape, got);
  const Dims b = layout::FilledStride(shape, planned);
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (int i = 0; i < shape.rank(); ++i) {
    if (!empty && shape[i] > 1 && a[i] != b[i]) return false;
  }
  return true;
}

Status Differs(const CallTensor& got, const PlannedTensor& planned) {
  if (!planned.present) return Status::InvalidArgument(Arg(got.name).Says("given, want none (as planned)"));
  if (got.dtype != planned.dtype) {
    return WrongType(got.name, got.dtype, std::string(Name(planned.dtype)) + " (as planned)");
  }
  if (!(*got.shape == planned.shape)) {
    return Status::InvalidArgument(Arg(got.name, ".shape").Is(Text(*got.shape)) + ", want " + Text(planned.shape) +
                                   " (as planned)");
  }
  return Status::InvalidArgument(Arg(got.name, ".stride").Is(Text(*got.stride)) + ", want " +
                                 Text(layout::FilledStride(planned.shape, planned.stride)) + " (as planned)");
}

}  // namespace

std::vector<PlannedTensor> KeepPlanned(std::span<const CallTensor> tensors) {
  std::vector<PlannedTensor> planned(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CallTensor& tensor = tensors[i];
    if (!tensor.required && tensor.data == nullptr) continue;
    planned[i] = {.present = true,
                  .dtype = tensor.dtype,
                  .shape = *tensor.shape,
                  .stride = *tensor.stride,
                  .span_bytes = layout::SpanBytes({tensor.data, tensor.dtype, *tensor.shape, *tensor.stride})};
  }
  return planned;
}

Status CheckPlanned(const CallTensor& got, const PlannedTensor& planned) {
  if (got.data == nullptr) {
    if (!planned.present) return Status::Ok();
    if (!got.required) {
      return Status::InvalidArgument(Arg(got.name).Says("null data, want it present (as planned)"));
    }
    if (planned.span_bytes > 0) return Status::InvalidArgument(Arg(got.name).Says("null data"));
  }
  if (planned.present && got.dtype == planned.dtype && *got.shape == planned.shape &&
      EquivalentStrides(*got.shape, *got.stride, planned.stride)) {
    return Status::Ok();
  }
  return Differs(got, planned);
}

Status CheckPlannedLengths(const char* name, std::span<const int64_t> got, std::span<const int64_t> planned) {
  if (got.size() != planned.size()) {
    return Status::InvalidArgument(Arg(name).Has(std::to_string(got.size())) + " entries, want " +
                                   std::to_string(planned.size()) + " (as planned)");
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    if (got[i] != planned[i]) {
      return Status::InvalidArgument(Arg(name, {}, At(static_cast<int64_t>(i))).Is(std::to_string(got[i])) + ", want " +
                                     std::to_string(planned[i]) + " (as planned)");
    }
  }
  return Status::Ok();
}

namespace {

// Returns the tensor with all its strides, which Overlap needs.
TensorView View(const CallTensor& tensor) {
  return {tensor.data, tensor.dtype, *tensor.shape, layout::FilledStride(*tensor.shape, *tensor.stride)};
}

struct ByteRange {
  uintptr_t begin = 0, end = 0;  // begin and end are equal if the tensor has no bytes
};

ByteRange RangeOf(const CallTensor& tensor, const PlannedTensor& planned) {
  if (tensor.data == nullptr) return {};
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  return {begin, begin + static_cast<uintptr_t>(planned.span_bytes)};
}

bool Intersect(const ByteRange& a, const ByteRange& b) {
  return a.begin < b.end && b.begin < a.end && a.begin != a.end && b.begin != b.end;
}

}  // namespace

Status CheckApart(const CallTensor& output, const PlannedTensor& planned, const CallTensor& other,
                  const PlannedTensor& other_planned) {
  // Comparing elements takes longer, so it is done only if the byte ranges intersect.
  if (!Intersect(RangeOf(output, planned), RangeOf(other, other_planned))) return Status::Ok();
  if (!layout::Overlap(View(output), View(other))) return Status::Ok();
  return Status::InvalidArgument(Arg(output.name).Says("shares memory with ") + Arg(other.name));
}

Status CheckAllPlanned(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    FA_RETURN_IF_ERROR(CheckPlanned(tensors[i], planned[i]));
  }
  return Status::Ok();
}

Status CheckAllApart(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].output) continue;
    for (size_t other = 0; other < i; ++other) {
      FA_RETURN_IF_ERROR(CheckApart(tensors[i], planned[i], tensors[other], planned[other]));
    }
  }
  return Status::Ok();
}

}  // namespace fa::ops
