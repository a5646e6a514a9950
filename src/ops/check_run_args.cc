#include <algorithm>
#include <array>
#include <string>

#include "fa/mask.h"
#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/argument_error.h"
#include "ops/bind_parts.h"

namespace fa::ops {
namespace {

// Strides are equal, or differ only in words: dense instead of empty, or on dimensions of one element.
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

Status Differs(const char* name, const TensorView& got, const TensorView& planned) {
  const std::string text = name;
  if (got.data == nullptr) return Status::InvalidArgument(text + ": null data, want it present (as planned)");
  if (planned.data == nullptr) return Status::InvalidArgument(text + ": given, want none (as planned)");
  if (got.dtype != planned.dtype) return WrongType(name, got.dtype, std::string(Name(planned.dtype)) + " (as planned)");
  if (!(got.shape == planned.shape)) {
    return Status::InvalidArgument(text + ".shape=" + Text(got.shape) + ", want " + Text(planned.shape) +
                                   " (as planned)");
  }
  return Status::InvalidArgument(text + ".stride=" + Text(got.stride) + ", want " +
                                 Text(layout::FilledStride(planned.shape, planned.stride)) + " (as planned)");
}

Status CheckTensor(const char* name, bool required, const TensorView& got, const TensorView& planned,
                   int64_t span_bytes) {
  if (required) {
    // An empty tensor needs no memory.
    if (got.data == nullptr && span_bytes > 0) return Status::InvalidArgument(std::string(name) + ": null data");
  } else if (got.data == nullptr || planned.data == nullptr) {
    return got.data == planned.data ? Status::Ok() : Differs(name, got, planned);
  }
  if (got.dtype == planned.dtype && got.shape == planned.shape &&
      EquivalentStrides(got.shape, got.stride, planned.stride)) {
    return Status::Ok();
  }
  static constexpr char kPresent = 0;
  TensorView present = got;
  present.data = &kPresent;
  return Differs(name, present, planned);
}

Status CheckLengths(const char* name, std::span<const int64_t> got, const std::vector<int64_t>& planned) {
  if (got.size() != planned.size()) {
    return Status::InvalidArgument(std::string(name) + " has " + std::to_string(got.size()) + " entries, want " +
                                   std::to_string(planned.size()) + " (as planned)");
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    if (got[i] != planned[i]) {
      return Status::InvalidArgument(std::string(name) + "[" + std::to_string(i) + "]=" + std::to_string(got[i]) +
                                     ", want " + std::to_string(planned[i]) + " (as planned)");
    }
  }
  return Status::Ok();
}

// Strides as Overlap wants them.
TensorView Filled(const TensorView& tensor) {
  return {tensor.data, tensor.dtype, tensor.shape, layout::FilledStride(tensor.shape, tensor.stride)};
}

struct ByteRange {
  uintptr_t begin = 0, end = 0;  // equal: nothing to share
};

bool Intersect(const ByteRange& a, const ByteRange& b) {
  return a.begin < b.end && b.begin < a.end && a.begin != a.end && b.begin != b.end;
}

constexpr size_t kInputCount = std::size(kInputs);
constexpr size_t kTensorCount = kInputCount + std::size(kOutputs);

TensorView TensorAt(const AttentionArgs& args, size_t i) {
  return i < kInputCount ? args.*kInputs[i].tensor : TensorView(args.*kOutputs[i - kInputCount].tensor);
}

const char* NameAt(size_t i) { return i < kInputCount ? kInputs[i].name : kOutputs[i - kInputCount].name; }

// Every output against every input and every later output: byte ranges first, exactly only where those intersect.
Status CheckOverlaps(const BoundAttention& bound, const AttentionArgs& args) {
  std::array<ByteRange, kTensorCount> range;
  const auto set_range = [&](size_t i, const void* data) {
    if (data == nullptr) return;
    range[i].begin = reinterpret_cast<uintptr_t>(data);
    range[i].end = range[i].begin + static_cast<uintptr_t>(bound.span_bytes[i]);
  };
  for (size_t i = 0; i < kInputCount; ++i) set_range(i, (args.*kInputs[i].tensor).data);
  for (size_t i = kInputCount; i < kTensorCount; ++i) set_range(i, (args.*kOutputs[i - kInputCount].tensor).data);
  for (size_t out = kInputCount; out < kTensorCount; ++out) {
    for (size_t other = 0; other < out; ++other) {
      if (!Intersect(range[out], range[other])) continue;
      if (layout::Overlap(Filled(TensorAt(args, out)), Filled(TensorAt(args, other)))) {
        return Status::InvalidArgument(std::string(NameAt(out)) + ": shares memory with " + NameAt(other));
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckRunArgs(const BoundAttention& bound, const AttentionArgs& args) {
  size_t i = 0;
  for (const NamedInput& input : kInputs) {
    if (Status status = CheckTensor(input.name, input.required, args.*input.tensor, bound.planned.*input.tensor,
                                    bound.span_bytes[i++]);
        !status.ok()) {
      return status;
    }
  }
  for (const NamedOutput& output : kOutputs) {
    if (Status status = CheckTensor(output.name, output.required, args.*output.tensor, bound.planned.*output.tensor,
                                    bound.span_bytes[i++]);
        !status.ok()) {
      return status;
    }
  }
  if (Status status = CheckLengths("cu_q", args.cu_q, bound.cu_q); !status.ok()) return status;
  if (Status status = CheckLengths("cu_kv", args.cu_kv, bound.cu_kv); !status.ok()) return status;
  if (Status status = CheckOverlaps(bound, args); !status.ok()) return status;
  if (bound.compressed_mask_mode < 0) return Status::Ok();
  return VerifyCompressedMask(args.dense_mask, bound.compressed_mask_mode);
}

}  // namespace fa::ops
