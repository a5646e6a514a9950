#include "files/tensors.h"

#include <fmt/format.h>

#include <utility>

#include "files/files_read.h"
#include "flags/failure.h"
#include "npy/npy_file.h"

namespace fa::tool {
namespace {

using npy::ElementType;

npy::Array LoadArray(const char* flag, const std::string& path) {
  try {
    return npy::Load(path);
  } catch (const npy::FormatError& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}", flag, error.what()));
  }
}

}  // namespace

DType DTypeOf(const char* flag, ElementType type, std::optional<DType> dtype) {
  switch (type) {
    case ElementType::kBool: return DType::kBool;
    case ElementType::kI8: return DType::kI8;
    case ElementType::kU8: return DType::kU8;
    case ElementType::kI32: return DType::kI32;
    case ElementType::kI64: return DType::kI64;
    case ElementType::kU64: return DType::kU64;
    case ElementType::kF16: return DType::kF16;
    case ElementType::kF32: return DType::kF32;
    case ElementType::kU16:
      if (dtype == DType::kBF16) return DType::kBF16;
      throw UsageError(fmt::format("{}: elements are uint16; for bf16 bits say --dtype bf16", flag));
    case ElementType::kI16:
    case ElementType::kU32:
    case ElementType::kF64: break;
  }
  throw UsageError(fmt::format("{}: elements are {}, which no operator takes", flag, npy::Name(type)));
}

ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ElementType::kF32;
    case DType::kF16: return ElementType::kF16;
    case DType::kBF16: return ElementType::kU16;
    case DType::kI8: return ElementType::kI8;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8: return ElementType::kU8;
    case DType::kBool: return ElementType::kBool;
    case DType::kI4x8:
    case DType::kI32: return ElementType::kI32;
    case DType::kI64: return ElementType::kI64;
    case DType::kU64: return ElementType::kU64;
  }
  return ElementType::kF32;
}

TensorView Tensor::View() const { return {array.bytes(), dtype, Dims(std::span(array.shape())), {}}; }
MutableTensorView Tensor::MutableView() { return {array.bytes(), dtype, Dims(std::span(array.shape())), {}}; }

Tensor LoadTensor(const char* flag, const std::string& path, std::optional<DType> dtype) {
  NoteFileRead(flag, path);
  npy::Array array = LoadArray(flag, path);
  const DType type = DTypeOf(flag, array.type(), dtype);
  return {std::move(array), type};
}

void CheckActivations(const char* flag, ElementType type, std::optional<DType> dtype, bool int8_too) {
  const DType got = DTypeOf(flag, type, dtype);
  if (int8_too && got == DType::kI8) return;
  const bool is_float = got == DType::kF32 || got == DType::kF16 || got == DType::kBF16;
  if (is_float && (!dtype || *dtype == got)) return;
  throw UsageError(fmt::format("{}: elements are {}, want {}", flag, npy::Name(type),
                               !dtype && int8_too       ? "float32, float16, int8, or uint16 with --dtype bf16"
                               : !dtype                 ? "float32, float16, or uint16 with --dtype bf16"
                               : *dtype == DType::kBF16 ? "uint16 (--dtype bf16)"
                               : *dtype == DType::kF16  ? "float16 (--dtype f16)"
                                                        : "float32 (--dtype f32)"));
}

Tensor LoadActivations(const char* flag, const std::string& path, std::optional<DType> dtype, bool int8_too) {
  Tensor tensor = LoadTensor(flag, path, dtype);
  CheckActivations(flag, tensor.array.type(), dtype, int8_too);
  return tensor;
}

Tensor NewTensor(DType dtype, std::vector<int64_t> shape) {
  return {npy::Array(ElementTypeOf(dtype), std::move(shape)), dtype};
}

}  // namespace fa::tool
