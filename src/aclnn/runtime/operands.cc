#include "aclnn/runtime/operands.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/strided_copy.h"
#include "fa/overlap.h"

namespace fa::aclnn {
namespace {

constexpr size_t kLineBytes = 64;
// No memory is as large as this. An operation that would need so large a workspace is refused.
constexpr size_t kMostBytes = size_t{1} << 62;

// A stand-in for memory whose address is not known yet: null would mean an absent tensor.
std::byte present;

// Returns the number of elements, or -1 for a shape that the library will refuse in an error with the tensor's name.
int64_t ElementsOf(const Dims& shape) {
  if (shape.rank() > Dims::kMaxRank) return -1;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return elements;
}

// Returns whether the format names the dimensions and does not change where elements lie.
bool SimpleFormat(aclFormat format) {
  switch (format) {
    case ACL_FORMAT_UNDEFINED:
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NHWC:
    case ACL_FORMAT_HWCN:
    case ACL_FORMAT_NDHWC:
    case ACL_FORMAT_NCDHW:
    case ACL_FORMAT_NC:
    case ACL_FORMAT_NCL: return true;
    default: return false;
  }
}

// Returns the name, for errors, of a type that programs for the device use and the library lacks.
const char* RefusedName(aclDataType dtype) {
  switch (dtype) {
    case ACL_INT4: return " (INT4; 8 numbers lie in an INT32)";
    case ACL_HIFLOAT8: return " (HIFLOAT8)";
    case ACL_FLOAT8_E5M2: return " (FLOAT8_E5M2)";
    case ACL_FLOAT8_E4M3FN: return " (FLOAT8_E4M3FN)";
    case ACL_FLOAT8_E8M0: return " (FLOAT8_E8M0)";
    case ACL_FLOAT4_E2M1:
    case ACL_FLOAT4_E1M2: return " (FLOAT4)";
    default: return "";
  }
}

// Returns whether a tensor of this form may have ACL_FORMAT_FRACTAL_NZ.
bool MayBeFractal(Operands::Form form, int rank) {
  return form == Operands::Form::kChunks || (form == Operands::Form::kPages && rank == 5);
}

std::optional<DType> TypeOf(aclDataType dtype, Operands::Form form) {
  if (form == Operands::Form::kBytes || form == Operands::Form::kChunks) return StorageTypeOf(dtype);
  if (form == Operands::Form::kPages && dtype == ACL_FLOAT8_E4M3FN) return DType::kF8E4M3;
  return DTypeOf(dtype);
}

// Returns whether the number of bytes from the first to the last element fits into 63 bits. Strides are >= 0.
bool SpanCounts(const Dims& shape, const Dims& stride, DType dtype) {
  int64_t last = 0;
  for (int i = 0; i < stride.rank(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(stride[i], std::max<int64_t>(shape[i] - 1, 0), &reach)) return false;
    if (__builtin_add_overflow(last, reach, &last)) return false;
  }
  return !__builtin_mul_overflow(last, static_cast<int64_t>(SizeOf(dtype)), &last) && last < INT64_MAX / 2;
}

bool HasNegative(const Dims& dims) {
  return std::any_of(dims.begin(), dims.end(), [](int64_t value) { return value < 0; });
}

}  // namespace

Operands::Slot Operands::Input(const char* name, const aclTensor* tensor, Form form) {
  return Add(name, tensor, form, {.used = true, .output = false, .optional = false});
}
Operands::Slot Operands::Output(const char* name, const aclTensor* tensor, Form form) {
  return Add(name, tensor, form, {.used = true, .output = true, .optional = false});
}
Operands::Slot Operands::OutputInPlace(const char* name, const aclTensor* tensor, Form form, Slot replaces) {
  const Slot slot = Output(name, tensor, form);
  if (slot != kAbsent) operands_[static_cast<size_t>(slot)].replaces = replaces;
  return slot;
}
Operands::Slot Operands::OptionalInput(const char* name, const aclTensor* tensor, Form form) {
  return Add(name, tensor, form, {.used = true, .output = false, .optional = true});
}
Operands::Slot Operands::OptionalOutput(const char* name, const aclTensor* tensor, Form form) {
  return Add(name, tensor, form, {.used = true, .output = true, .optional = true});
}
void Operands::Ignored(const char* name, const aclTensor* tensor, bool output) {
  Add(name, tensor, Form::kRows, {.used = false, .output = output, .optional = true});
}

std::vector<size_t> Operands::IndicesOf(bool outputs) const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output == outputs) indices.push_back(i);
  }
  return indices;
}

Operands::Slot Operands::Add(const char* name, const aclTensor* tensor, Form form, Role role) {
  if (tensor == nullptr || !status_.ok()) return kAbsent;
  const std::shared_ptr<aclTensor> found = FindTensor(tensor);
  if (found == nullptr) {
    status_ = Status::InvalidArgument(std::string(name) + ": not created, or destroyed");
    return kAbsent;
  }
  Operand operand;
  operand.name = name;
  operand.used = role.used;
  operand.output = role.output;
  operand.shape = found->shape;
  if (role.optional && ElementsOf(found->shape) == 0) operand.used = false;
  if (operand.used) status_ = Describe(*found, form, &operand);
  const bool used = operand.used && status_.ok();
  operands_.push_back(std::move(operand));
  addresses_.push_back(found->data);
  return used ? static_cast<Slot>(operands_.size()) - 1 : kAbsent;
}

Status Operands::Describe(const aclTensor& tensor, Form form, Operand* operand) {
  const std::string name = operand->name;
  const bool any_type = form == Form::kBytes || form == Form::kChunks;
  const std::optional<DType> dtype = TypeOf(tensor.dtype, form);
  if (!dtype) {
    return Status::InvalidArgument(name + ": aclDataType " + std::to_string(static_cast<int>(tensor.dtype)) +
                                   RefusedName(tensor.dtype) + " is not supported");
  }
  const bool fractal = tensor.format == ACL_FORMAT_FRACTAL_NZ && MayBeFractal(form, tensor.shape.rank());
  if (!SimpleFormat(tensor.format) && !fractal) {
    return Status::InvalidArgument(name + ": aclFormat " + std::to_string(static_cast<int>(tensor.format)) +
                                   ", want ACL_FORMAT_ND");
  }
  int64_t offset_bytes = 0;
  if (tensor.offset < 0 || __builtin_mul_overflow(tensor.offset, static_cast<int64_t>(SizeOf(*dtype)), &offset_bytes)) {
    return Status::InvalidArgument(name + ": offset " + std::to_string(tensor.offset) + ", want >= 0");
  }
  operand->dtype = *dtype;
  operand->stride = tensor.stride;
  operand->offset_bytes = offset_bytes;
  operand->seen_shape = tensor.shape;
  operand->seen_stride = tensor.stride;

  const int64_t elements = ElementsOf(tensor.shape);
  const int rank = tensor.shape.rank();
  if (elements > 0 && !HasNegative(tensor.stride) && !SpanCounts(tensor.shape, tensor.stride, *dtype)) {
    return Status::InvalidArgument(name + ".stride: want a span of fewer than 2^62 bytes");
  }
  if (elements < 0 || rank == 0 || form == Form::kAnyStride || any_type || HasNegative(tensor.stride))
    return Status::Ok();
  const bool dense = IsDense({nullptr, *dtype, tensor.shape, tensor.stride});
  const bool gaps_inside = !tensor.stride.empty() && tensor.shape[rank - 1] > 1 && tensor.stride[rank - 1] != 1;
  const bool pack = elements > 0 && (form == Form::kRows || form == Form::kPages ? gaps_inside : !dense);
  if (form == Form::kFlat) operand->seen_shape = {elements};
  if (form == Form::kFlat || pack) operand->seen_stride = {};
  if (pack) return BookPacked(elements, operand);
  return Status::Ok();
}

Status Operands::BookPacked(int64_t elements, Operand* operand) {
  if (operand->output && OverlapsItself({nullptr, operand->dtype, operand->shape, operand->stride})) {
    return Status::InvalidArgument(std::string(operand->name) + ".stride: want strides that keep its elements apart");
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(SizeOf(operand->dtype)), &bytes)) {
    return Status::InvalidArgument(std::string(operand->name) + ".shape: want fewer than 2^63 bytes");
  }
  operand->packed = true;
  operand->packed_at = Book(static_cast<size_t>(bytes));
  return Status::Ok();
}

MutableTensorView Operands::Caller(size_t i, const CallMemory& memory) const {
  const Operand& operand = operands_[i];
  auto* address = static_cast<std::byte*>(memory.addresses[i]);
  return {address == nullptr ? nullptr : address + operand.offset_bytes, operand.dtype, operand.shape, operand.stride};
}

MutableTensorView Operands::Seen(Slot slot, const CallMemory* memory) const {
  if (slot == kAbsent) return {};
  const auto i = static_cast<size_t>(slot);
  const Operand& operand = operands_[i];
  MutableTensorView seen{&present, operand.dtype, operand.seen_shape, operand.seen_stride};
  if (memory == nullptr) return seen;
  seen.data = operand.packed ? memory->workspace + operand.packed_at : Caller(i, *memory).data;
  // A null address would mean an absent tensor.
  if (seen.data == nullptr && ElementsOf(operand.shape) == 0) seen.data = &present;
  return seen;
}

TensorView Operands::In(Slot slot, const CallMemory* memory) const { return Seen(slot, memory); }
MutableTensorView Operands::Out(Slot slot, const CallMemory* memory) const { return Seen(slot, memory); }

bool Operands::IsEmpty(Slot slot) const {
  return slot == kAbsent || ElementsOf(operands_[static_cast<size_t>(slot)].shape) == 0;
}

MutableTensorView Operands::Booked(DType dtype, const Dims& shape, size_t at, const CallMemory* memory) {
  return {memory == nullptr ? &present : memory->workspace + at, dtype, shape, {}};
}

Status Operands::CheckApart(const CallMemory& memory) const {
  const TensorView workspace{memory.workspace, DType::kU8, {static_cast<int64_t>(booked_bytes_)}, {}};
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].used) continue;
    if (Overlap(Caller(i, memory), workspace)) {
      return Status::InvalidArgument(std::string(operands_[i].name) + ": shares memory with workspace");
    }
    for (size_t other = 0; operands_[i].output && other < operands_.size(); ++other) {
      const bool checked = operands_[other].output && other >= i;
      if (checked || !operands_[other].used || MayShare(i, other, memory)) continue;
      if (!Overlap(Caller(i, memory), Caller(other, memory))) continue;
      return Status::InvalidArgument(std::string(operands_[i].name) + ": shares memory with " + operands_[other].name);
    }
  }
  return Status::Ok();
}

bool Operands::MayShare(size_t output, size_t other, const CallMemory& memory) const {
  const MutableTensorView a = Caller(output, memory), b = Caller(other, memory);
  const auto stride = [](const MutableTensorView& view) {
    return view.stride.empty() ? DenseStride(view.shape) : view.stride;
  };
  return operands_[output].replaces == static_cast<Slot>(other) && a.data == b.data && a.shape == b.shape &&
         stride(a) == stride(b);
}

Status Operands::PackInputs(const CallMemory& memory) const {
  FA_RETURN_IF_ERROR(CheckApart(memory));
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (!operand.packed || operand.output) continue;
    CopyElements(Caller(i, memory), {memory.workspace + operand.packed_at, operand.dtype, operand.shape, {}});
  }
  return Status::Ok();
}

void Operands::ScatterOutputs(const CallMemory& memory) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (!operand.packed || !operand.output) continue;
    CopyElements({memory.workspace + operand.packed_at, operand.dtype, operand.shape, {}}, Caller(i, memory));
  }
}

size_t Operands::Book(size_t bytes) {
  const size_t begin = booked_bytes_;
  const size_t lines = bytes / kLineBytes + (bytes % kLineBytes > 0 ? 1 : 0);
  if (lines > (kMostBytes - std::min(begin, kMostBytes)) / kLineBytes) {
    booked_bytes_ = kMostBytes;
  } else {
    booked_bytes_ += lines * kLineBytes;
  }
  return begin;
}

const char* Operands::FirstWithoutMemory(std::span<void* const> addresses) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].used && addresses[i] == nullptr && ElementsOf(operands_[i].shape) > 0) return operands_[i].name;
  }
  return nullptr;
}

}  // namespace fa::aclnn
