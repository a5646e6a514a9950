#include "arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tensors.h"

namespace nb = nanobind;

namespace fa::python {
namespace {

// The address that stands for arrays without elements, and for arrays whose memory a plan does not read.
alignas(64) std::byte present;

constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8,     DType::kU8,     DType::kBool,
                               DType::kI32, DType::kI64,  DType::kU64, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8};

// DLPack's codes of 8-bit floats, which nanobind does not name.
constexpr uint8_t kCodeE4M3 = 10, kCodeE5M2 = 12;

/// Returns, in words, the types that the argument `name` may have.
const char* TypesOf(std::string_view name) {
  for (const std::string_view end : {"mask", "indices", "table"}) {
    if (name.ends_with(end)) return "bool or an integer type";
  }
  if (name.find("scale") != name.npos) return "float32, bfloat16 or an integer type";
  return "float32, float16 or bfloat16";
}

std::optional<DType> KnownType(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) { return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits; };
  if (dtype.lanes != 1) return {};
  if (is(Code::Float, 32)) return DType::kF32;
  if (is(Code::Float, 16)) return DType::kF16;
  if (is(Code::Bfloat, 16)) return DType::kBF16;
  if (is(Code::Bool, 8)) return DType::kBool;
  if (is(Code::UInt, 8)) return DType::kU8;
  if (is(Code::Int, 8)) return DType::kI8;
  if (is(Code::Int, 32)) return DType::kI32;
  if (is(Code::Int, 64)) return DType::kI64;
  if (is(Code::UInt, 64)) return DType::kU64;
  if (dtype.bits == 8 && dtype.code == kCodeE4M3) return DType::kF8E4M3;
  if (dtype.bits == 8 && dtype.code == kCodeE5M2) return DType::kF8E5M2;
  return {};
}

DType DTypeOf(const char* name, nb::dlpack::dtype dtype) {
  if (const auto known = KnownType(dtype)) return *known;
  const bool is_float = dtype.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
  const char* kind = is_float ? "a float" : "a type";
  Raise(Status::InvalidArgument(Arg(name, ".dtype") + " is " + kind + " of " + std::to_string(dtype.bits) +
                                " bits, want " + TypesOf(name)));
  return {};
}

/// Multiplies *step by `size`. If the product exceeds int64_t, *step becomes int64_t's maximum, which the library
/// refuses.
void Grow(int64_t size, int64_t* step) {
  if (__builtin_mul_overflow(*step, size, step)) *step = std::numeric_limits<int64_t>::max();
}

// Reads an array's shape and strides. A dimension of size 1 may have any stride, so FillDims gives it the stride of a
// dense array.
template <typename AnyArray>
void FillDims(const AnyArray& array, Dims* shape, Dims* stride) {
  for (size_t i = 0; i < array.ndim(); ++i) shape->push_back(static_cast<int64_t>(array.shape(i)));
  *stride = DenseStride(*shape);
  if (array.size() == 0) return;
  for (size_t i = 0; i < array.ndim() && i < Dims::kMaxRank; ++i) {
    if (array.shape(i) > 1) (*stride)[static_cast<int>(i)] = array.stride(i);
  }
}

template <typename View, typename AnyArray>
View ViewOf(const char* name, const AnyArray& array) {
  View view{array.size() > 0 ? array.data() : &present, DTypeOf(name, array.dtype()), {}, {}};
  FillDims(array, &view.shape, &view.stride);
  return view;
}

/// Raises the error for an object that is not an array.
[[noreturn]] void RaiseNoArray(const char* name, const nb::object& object) {
  if (nb::hasattr(object, "__dlpack__")) {
    // The error that the object itself raises says more, for example about a tensor that requires a gradient.
    try {
      object.attr("__dlpack__")();
    } catch (const nb::python_error& error) {
      const ErrorText text = Arg(name).Says(nb::str(error.value()).c_str());
      Raise(error.matches(PyExc_BufferError) ? PyExc_ValueError : PyExc_TypeError, text);
    }
  }
  const std::string got = nb::cast<std::string>(object.type().attr("__name__"));
  Raise(PyExc_TypeError,
        Arg(name).Says("want an array in memory (NumPy, or any CPU tensor that has __dlpack__), got ") + got);
}

template <typename AnyArray>
AnyArray Cast(const char* name, const nb::object& object) {
  AnyArray array;
  if (!nb::try_cast(object, array, /*convert=*/false) || !array.is_valid()) RaiseNoArray(name, object);
  if (array.device_type() != nb::device::cpu::value) {
    Raise(PyExc_ValueError, Arg(name).Says("lies on another device, want a CPU tensor"));
  }
  return array;
}

/// Copies the elements from dimension `dim` inwards. Elements that lie next to each other along the innermost dimension
/// are copied at once.
void CopyElements(const TensorView& from, int dim, const std::byte* source, const Dims& stride, std::byte* target) {
  const auto bytes = static_cast<int64_t>(SizeOf(from.dtype));
  const int64_t size = stride[dim] == 0 ? 1 : from.shape[dim];
  const bool last = dim == from.shape.rank() - 1;
  if (last && from.stride[dim] == 1) {
    std::memcpy(target, source, static_cast<size_t>(size * bytes));
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    const std::byte* at = source + i * from.stride[dim] * bytes;
    std::byte* to = target + i * stride[dim] * bytes;
    if (last) {
      std::memcpy(to, at, static_cast<size_t>(bytes));
    } else {
      CopyElements(from, dim + 1, at, stride, to);
    }
  }
}

/// Returns the strides of a dense copy, and the copy's number of elements. A broadcast dimension keeps stride 0, unless
/// it is the innermost one.
Dims CopyStride(const TensorView& view, int64_t* elements) {
  Dims stride = view.shape;
  *elements = 1;
  const int innermost = view.shape.rank() - 1;
  for (int i = innermost; i >= 0; --i) {
    const bool broadcast = i < innermost && view.shape[i] > 1 && view.stride[i] == 0;
    stride[i] = broadcast ? 0 : *elements;
    if (!broadcast) Grow(view.shape[i], elements);
  }
  return stride;
}

bool IsBroadcast(const MutableTensorView& view) {
  for (int i = 0; i < std::min(view.shape.rank(), Dims::kMaxRank); ++i) {
    if (view.shape[i] > 1 && view.stride[i] == 0) return true;
  }
  return false;
}

/// Gives a DLTensor the member functions of nb::ndarray that `FillDims` calls.
struct Described {
  const nb::dlpack::dltensor& tensor;
  [[nodiscard]] size_t ndim() const { return static_cast<size_t>(tensor.ndim); }
  [[nodiscard]] int64_t shape(size_t i) const { return tensor.shape[i]; }
  [[nodiscard]] int64_t stride(size_t i) const { return tensor.strides[i]; }
  [[nodiscard]] size_t size() const { return std::count(tensor.shape, tensor.shape + tensor.ndim, 0) == 0 ? 1 : 0; }
};

}  // namespace

Dims DenseStride(const Dims& shape) {
  Dims stride = shape;
  int64_t step = 1;
  for (int i = std::min(shape.rank(), Dims::kMaxRank) - 1; i >= 0; --i) {
    stride[i] = step;
    Grow(std::max<int64_t>(shape[i], 1), &step);
  }
  return stride;
}

bool WantsCopy(const TensorView& view, bool any_innermost) {
  const int rank = view.shape.rank();
  if (rank == 0 || rank > Dims::kMaxRank || view.data == &present) return false;
  if (reinterpret_cast<uintptr_t>(view.data) % SizeOf(view.dtype) != 0) return true;
  if (std::any_of(view.stride.begin(), view.stride.end(), [](int64_t step) { return step < 0; })) return true;
  return !any_innermost && view.shape[rank - 1] > 1 && view.stride[rank - 1] != 1;
}

std::optional<MutableTensorView> ViewOf(const nb::dlpack::dltensor& tensor) {
  const Described array{tensor};
  const auto dtype = KnownType(tensor.dtype);
  const bool elsewhere = tensor.device.device_type != nb::device::cpu::value;
  if (elsewhere || !dtype || (tensor.strides == nullptr && tensor.ndim > 0)) return {};
  if (tensor.data == nullptr && array.size() > 0) return {};
  MutableTensorView view{&present, *dtype, {}, {}};
  if (array.size() > 0) view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  FillDims(array, &view.shape, &view.stride);
  return view;
}

void Raise(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument: Raise(PyExc_ValueError, status.what(), status.class_text());
    case StatusCode::kOutOfMemory: Raise(PyExc_MemoryError, status.what(), status.class_text());
    default: Raise(PyExc_RuntimeError, status.what(), status.class_text());
  }
}

ErrorText Arg(std::string_view name, std::string_view member) {
  const size_t element = std::min(name.find('['), name.size());
  return ErrorText::Argument(name.substr(0, element), std::string(name.substr(element)).append(member));
}

void Raise(PyObject* type, const ErrorText& error, std::string_view prefix) {
  const auto text = [](std::string_view words) { return nb::str(words.data(), words.size()); };
  const std::string_view all = error.text();
  nb::list parts;
  parts.append(text(prefix));
  size_t begin = 0;
  for (const ErrorText::Mention& mention : error.mentions()) {
    parts.append(text(all.substr(begin, mention.begin - begin)));
    parts.append(nb::make_tuple(text(error.Name(mention)), text(error.Member(mention)), text(error.Index(mention))));
    begin = mention.end;
  }
  parts.append(text(all.substr(begin)));
  nb::object raised = nb::borrow(type)(text(std::string(prefix) + error.text()));
  raised.attr("parts") = nb::tuple(parts);
  PyErr_SetObject(type, raised.ptr());
  throw nb::python_error();
}

nb::object CallArrays::Find(const char* name) const {
  const nb::str key(name);
  return arrays_.contains(key) ? nb::object(arrays_[key]) : nb::object(nb::none());
}

std::string CallArrays::Word(const char* name) const {
  const nb::object object = Find(name);
  return object.is_none() ? std::string() : nb::cast<std::string>(object);
}

MutableTensorView CallArrays::ShapeOnly(const char* name, const nb::object& shape) const {
  if (kind_ != kShapesToo) Raise(PyExc_TypeError, Arg(name).Says("want an array, got a tuple"));
  MutableTensorView view{&present, DType::kF32, {}, {}};
  bool first = true;
  for (const nb::handle item : shape) {
    int64_t size = 0;
    if (std::exchange(first, false)) {
      view.dtype = Named<DType>("dtype", nb::cast<std::string>(item), kTypes);
    } else if (nb::try_cast(item, size)) {
      view.shape.push_back(size);
    } else {
      Raise(PyExc_TypeError, Arg(name, ".shape").Says("want integers of 64 bits"));
    }
  }
  return view;
}

TensorView CallArrays::Input(const char* name, bool any_innermost) {
  for (const Imported& input : inputs_) {
    if (input.name == std::string_view(name)) return input.view;
  }
  const nb::object object = Find(name);
  return object.is_none() ? TensorView{} : Import(name, object, any_innermost);
}

TensorView CallArrays::Mask(const char* name, const PairMask** pairs) {
  const nb::object object = Find(name);
  if (!nb::isinstance<PairMask>(object)) return In(name);
  *pairs = nb::cast<const PairMask*>(object);
  return {};
}

std::vector<TensorView> CallArrays::List(const char* name) {
  const nb::object object = Find(name);
  if (object.is_none()) return {};
  if (!nb::isinstance<nb::list>(object)) return {In(name)};
  const auto name_of = [name](size_t i) { return std::string(name) + "[" + std::to_string(i) + "]"; };
  const auto known =
      std::find_if(inputs_.begin(), inputs_.end(), [first = name_of(0)](const auto& i) { return i.name == first; });
  std::vector<TensorView> views;
  if (known != inputs_.end()) {  // The views of one list are consecutive in inputs_.
    std::transform(known, known + static_cast<std::ptrdiff_t>(nb::len(object)), std::back_inserter(views),
                   [](const Imported& input) { return input.view; });
    return views;
  }
  for (const nb::handle item : object) {
    list_names_.push_back(name_of(views.size()));
    views.push_back(Import(list_names_.back().c_str(), nb::borrow(item), /*any_innermost=*/false));
  }
  return views;
}

TensorView CallArrays::Import(const char* name, const nb::object& object, bool any_innermost) {
  if (nb::isinstance<nb::tuple>(object)) return ShapeOnly(name, object);
  Imported input;
  input.name = name;
  TensorView& source = input.source;
  if (const auto tensor = ReadTensor(object)) {
    source = *tensor;
  } else {
    input.array = Cast<Array>(name, WithSigns(object));
    source = ViewOf<TensorView>(name, input.array);
  }
  input.view = source;
  input.wants_copy = WantsCopy(source, any_innermost);
  if (input.wants_copy) {
    int64_t elements = 0;
    input.view = {&present, source.dtype, source.shape, CopyStride(source, &elements)};
  }
  inputs_.push_back(std::move(input));
  return inputs_.back().view;
}

MutableTensorView CallArrays::Out(const char* name) {
  const nb::object object = Find(name);
  if (object.is_none()) return {};
  if (nb::isinstance<nb::tuple>(object)) return ShapeOnly(name, object);
  MutableTensorView view;
  if (const auto tensor = ReadTensor(object)) {
    view = *tensor;
  } else {
    outputs_.push_back(Cast<nb::ndarray<>>(name, object));
    view = ViewOf<MutableTensorView>(name, outputs_.back());
  }
  if (!IsBroadcast(view)) return view;
  if (without_memory_ == nullptr) without_memory_ = name;
  return {&present, view.dtype, view.shape, DenseStride(view.shape)};
}

bool CallArrays::incomplete() const {
  return without_memory_ != nullptr ||
         std::any_of(inputs_.begin(), inputs_.end(), [](const Imported& input) { return input.wants_copy; });
}

Status CallArrays::Complete() {
  if (without_memory_ != nullptr) return Status::OutOfMemory(Arg(without_memory_));
  for (Imported& input : inputs_) {
    if (!input.wants_copy || input.copy != nullptr) continue;
    const auto item = static_cast<int64_t>(SizeOf(input.source.dtype));
    int64_t elements = 0, bytes = 0;
    const Dims stride = CopyStride(input.source, &elements);
    if (!__builtin_mul_overflow(elements, item, &bytes)) {
      input.copy.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
    }
    if (input.copy == nullptr) return Status::OutOfMemory("copy of " + Arg(input.name));
    CopyElements(input.source, 0, static_cast<const std::byte*>(input.source.data), stride, input.copy.get());
    input.view.data = input.copy.get();
  }
  return Status::Ok();
}

}  // namespace fa::python
