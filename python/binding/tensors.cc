#include "tensors.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

// The table of functions that DLPack 1.2 defines, with its order of members.
struct ExchangeApi {
  struct Header {
    uint32_t major, minor;
    const Header* older;
  } header;
  void* allocate;
  void* export_owned;
  void* import_owned;
  int (*read)(void* tensor, nb::dlpack::dltensor* out);  ///< may be null; returns -1 with an error set if it fails
  void* stream;
};
constexpr uint32_t kMajor = 1;

/// The parts of PyTorch that `use_torch` has passed. The object is never destroyed, because the interpreter may end
/// before C++ destroys static objects.
struct Torch {
  std::vector<PyTypeObject*> classes;
  decltype(ExchangeApi::read) read = nullptr;
  PyObject* keys_of = nullptr;
  std::vector<uint64_t> plain_keys;
  PyObject* empty_strided = nullptr;
  PyObject* empty_like = nullptr;
  PyObject* float32 = nullptr;
};

Torch& Given() {
  static auto* torch = new Torch;
  return *torch;
}

bool UseTorch(const nb::object& classes, const nb::object& keys_of, const std::vector<uint64_t>& plain_keys,
              const nb::object& empty_strided, const nb::object& empty_like, const nb::object& float32) {
  Torch torch;
  for (const nb::handle type : classes) {
    const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
    const auto* api = capsule.is_none()
                          ? nullptr
                          : static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (api == nullptr || api->header.major != kMajor || api->read == nullptr) {
      PyErr_Clear();
      return false;
    }
    torch.read = api->read;
    torch.classes.push_back(reinterpret_cast<PyTypeObject*>(nb::object(nb::borrow(type)).release().ptr()));
  }
  torch.keys_of = nb::object(keys_of).release().ptr();
  torch.plain_keys = plain_keys;
  torch.empty_strided = nb::object(empty_strided).release().ptr();
  torch.empty_like = nb::object(empty_like).release().ptr();
  torch.float32 = nb::object(float32).release().ptr();
  Given() = std::move(torch);
  return true;
}

bool IsTensor(const Torch& torch, nb::handle object) {
  const auto is_of = [type = Py_TYPE(object.ptr())](PyTypeObject* known) { return known == type; };
  return std::any_of(torch.classes.begin(), torch.classes.end(), is_of);
}

/// Returns whether the tensor's set of dispatch keys is one of `plain_keys`. Wrappers, negated views and tensors
/// without memory have other sets.
bool HasPlainKeys(const Torch& torch, nb::handle tensor) {
  const nb::object keys = nb::handle(torch.keys_of)(tensor).attr("raw_repr")();
  return std::find(torch.plain_keys.begin(), torch.plain_keys.end(), nb::cast<uint64_t>(keys)) !=
         torch.plain_keys.end();
}

nb::tuple TupleOf(const Dims& dims) {
  nb::list list;
  for (const int64_t size : dims) list.append(size);
  return nb::tuple(list);
}

nb::object Empty(const Dims& shape, const Dims& strides, nb::handle dtype) {
  return nb::handle(Given().empty_strided)(TupleOf(shape), TupleOf(strides), "dtype"_a = dtype);
}

}  // namespace

std::optional<MutableTensorView> ReadTensor(nb::handle object) {
  const Torch& torch = Given();
  if (!IsTensor(torch, object) || !HasPlainKeys(torch, object)) return {};
  nb::dlpack::dltensor tensor;
  if (torch.read(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return {};
  }
  return ViewOf(tensor);
}

nb::object WithSigns(nb::object object) {
  if (!IsTensor(Given(), object) || !nb::cast<bool>(object.attr("is_neg")())) return object;
  return object.attr("resolve_neg")();
}

nb::object NewTensor(nb::handle like, const Dims& shape, const Dims& strides) {
  return Empty(shape, strides, like.attr("dtype"));
}

nb::object NewTensorLike(nb::handle like) { return nb::handle(Given().empty_like)(like); }

nb::object NewFloats(const Dims& shape) { return NewFloats(shape, DenseStride(shape)); }

nb::object NewFloats(const Dims& shape, const Dims& strides) { return Empty(shape, strides, Given().float32); }

void BindTensors(nb::module_& module) {
  module.def("use_torch", &UseTorch, "classes"_a, "keys_of"_a, "plain_keys"_a, "empty_strided"_a, "empty_like"_a,
             "float32"_a,
             "What the extension needs of PyTorch. False: this PyTorch does not say where its tensors lie.");
}

}  // namespace fa::python
