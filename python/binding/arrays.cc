#include "arrays.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace nb = nanobind;

namespace fa::python {
namespace {

// Stands for memory that a plan does not look at, and for that of an array without elements.
std::byte present;

DType DTypeOf(const char* name, nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) { return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits; };
  if (dtype.lanes == 1) {
    if (is(Code::Float, 32)) return DType::kF32;
    if (is(Code::Float, 16)) return DType::kF16;
    if (is(Code::Bfloat, 16)) return DType::kBF16;
    if (is(Code::Bool, 8)) return DType::kBool;
    if (is(Code::UInt, 8)) return DType::kU8;
    if (is(Code::Int, 8)) return DType::kI8;
    if (is(Code::Int, 32)) return DType::kI32;
    if (is(Code::Int, 64)) return DType::kI64;
    if (is(Code::UInt, 64)) return DType::kU64;
  }
  const char* kind = dtype.code == static_cast<uint8_t>(Code::Float) ? "a float" : "a type";
  Raise(Status::InvalidArgument(std::string(name) + ".dtype is " + kind + " of " + std::to_string(dtype.bits) +
                                " bits, want float32, float16, bfloat16, bool or an integer type"));
  return {};
}

Dims DenseStride(const Dims& shape) {
  Dims stride = shape;
  int64_t step = 1;
  for (int i = std::min(shape.rank(), Dims::kMaxRank) - 1; i >= 0; --i) {
    stride[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return stride;
}

// Strides of dimensions that are not walked along mean nothing, and libraries put anything there.
template <typename AnyArray>
void FillDims(const AnyArray& array, Dims* shape, Dims* stride) {
  for (size_t i = 0; i < array.ndim(); ++i) shape->push_back(static_cast<int64_t>(array.shape(i)));
  *stride = DenseStride(*shape);
  for (size_t i = 0; i < array.ndim() && i < Dims::kMaxRank; ++i) {
    if (array.shape(i) > 1) (*stride)[static_cast<int>(i)] = array.stride(i);
  }
}

template <typename AnyArray>
AnyArray Cast(const char* name, const nb::object& object) {
  AnyArray array;
  if (!nb::try_cast(object, array, /*convert=*/false) || !array.is_valid()) {
    // Its own error says more, of a tensor that requires a gradient for example.
    if (nb::hasattr(object, "__dlpack__")) object.attr("__dlpack__")();
    throw nb::type_error(
        (std::string(name) + ": want an array in memory (NumPy, or any CPU tensor that has __dlpack__)").c_str());
  }
  if (array.device_type() != nb::device::cpu::value) {
    throw nb::value_error((std::string(name) + ": lies on another device, want a CPU tensor").c_str());
  }
  return array;
}

void CopyElements(const TensorView& from, int dim, const std::byte* source, std::byte** target, size_t bytes) {
  if (dim == from.shape.rank()) {
    std::memcpy(*target, source, bytes);
    *target += bytes;
    return;
  }
  for (int64_t i = 0; i < from.shape[dim]; ++i) {
    CopyElements(from, dim + 1, source + i * from.stride[dim] * static_cast<int64_t>(bytes), target, bytes);
  }
}

bool NeedsPacking(const TensorView& view) {
  const int rank = view.shape.rank();
  if (rank == 0 || rank > Dims::kMaxRank) return false;
  const bool negative = std::any_of(view.stride.begin(), view.stride.end(), [](int64_t step) { return step < 0; });
  return negative || (view.shape[rank - 1] > 1 && view.stride[rank - 1] != 1);
}

}  // namespace

void Raise(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument: throw nb::value_error(status.message().c_str());
    case StatusCode::kOutOfMemory:
      PyErr_SetString(PyExc_MemoryError, status.message().c_str());
      throw nb::python_error();
    default: throw std::runtime_error(status.message());
  }
}

nb::object CallArrays::Find(const char* name) const {
  const nb::str key(name);
  return arrays_.contains(key) ? nb::object(arrays_[key]) : nb::object(nb::none());
}

MutableTensorView CallArrays::ShapeOnly(const char* name, const nb::object& shape) const {
  if (!shapes_dtype_) throw nb::type_error((std::string(name) + ": want an array, got a tuple").c_str());
  MutableTensorView view{&present, *shapes_dtype_, {}, {}};
  const std::string_view argument = name;
  if (argument.starts_with("softmax") || argument == "sink") view.dtype = DType::kF32;
  for (const nb::handle size : shape) view.shape.push_back(nb::cast<int64_t>(size));
  return view;
}

TensorView CallArrays::Import(const char* name) {
  const nb::object object = Find(name);
  if (object.is_none()) return {};
  if (nb::isinstance<nb::tuple>(object)) return ShapeOnly(name, object);
  held_.push_back(Cast<Array>(name, object));
  const Array& array = held_.back();
  TensorView view{array.size() > 0 ? array.data() : &present, DTypeOf(name, array.dtype()), {}, {}};
  FillDims(array, &view.shape, &view.stride);
  return view;
}

TensorView CallArrays::Statistics(const char* name) { return Import(name); }

TensorView CallArrays::In(const char* name) {
  const TensorView view = Import(name);
  return NeedsPacking(view) ? Packed(view) : view;
}

TensorView CallArrays::Packed(const TensorView& view) {
  const size_t bytes = SizeOf(view.dtype);
  size_t total = bytes;
  for (const int64_t size : view.shape) total *= static_cast<size_t>(size);
  packed_.push_back(std::make_unique_for_overwrite<std::byte[]>(total));
  std::byte* target = packed_.back().get();
  CopyElements(view, 0, static_cast<const std::byte*>(view.data), &target, bytes);
  return {packed_.back().get(), view.dtype, view.shape, {}};
}

MutableTensorView CallArrays::Out(const char* name) {
  const nb::object object = Find(name);
  if (object.is_none()) return {};
  if (nb::isinstance<nb::tuple>(object)) return ShapeOnly(name, object);
  held_outputs_.push_back(Cast<nb::ndarray<>>(name, object));
  const nb::ndarray<>& array = held_outputs_.back();
  MutableTensorView view{array.size() > 0 ? array.data() : &present, DTypeOf(name, array.dtype()), {}, {}};
  FillDims(array, &view.shape, &view.stride);
  return view;
}

}  // namespace fa::python
