#ifndef FA_PYTHON_BINDING_ARRAYS_H_
#define FA_PYTHON_BINDING_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fa/error_text.h"
#include "fa/pair_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::python {

/// If the status is an error, throws ValueError, MemoryError or RuntimeError with its message. The exception has an
/// attribute `parts`: the words of the message, and (name, member, index) for each argument in the message.
void Raise(const Status& status);
/// Throws a Python exception of this type, with the attribute `parts` that Raise(status) describes.
[[noreturn]] void Raise(PyObject* type, const ErrorText& error, std::string_view prefix = {});

/// Returns the text by which an error mentions the argument `name`. `name` may be an element of a list, such as "k[1]".
ErrorText Arg(std::string_view name, std::string_view member = {});

/// Returns the enumerator among `choices` whose fa::Name is `name`, for example "f32". Throws ValueError if there is
/// none.
template <typename Enum, typename Choices>
Enum Named(const char* argument, const std::string& name, const Choices& choices) {
  std::string want;
  for (const Enum choice : choices) {
    if (name == Name(choice)) return choice;
    want += (want.empty() ? "" : ", ") + std::string(Name(choice));
  }
  Raise(Status::InvalidArgument(Arg(argument).Is("\"" + name + "\"") + ", want one of " + want));
  return {};
}

/// Returns the strides of an array without gaps, outermost dimension first.
Dims DenseStride(const Dims& shape);

/// Returns a view of a DLTensor's memory. Returns nothing if the memory is not the CPU's, if address or strides are
/// missing, or if the library lacks the type.
std::optional<MutableTensorView> ViewOf(const nanobind::dlpack::dltensor& tensor);

/// Returns whether `view` must be copied because the library cannot read it in place. With any_innermost, an innermost
/// stride other than 1 is no reason for a copy. Statistics and sinks of dense calls may have such a stride.
bool WantsCopy(const TensorView& view, bool any_innermost);

/// The arrays of one call, by name, as views for the library. The views share the arrays' memory by DLPack or the
/// buffer protocol. RunChecked copies an input that the library cannot read: one with a negative stride, an innermost
/// stride that is not 1, or unaligned elements. This object keeps the views' memory alive.
class CallArrays {
 public:
  /// With kShapesToo, a tuple ("f32", size, ...) may replace an array. The tuple gives a type and a shape without
  /// contents, which is enough to make a plan.
  enum Kind : uint8_t { kArrays, kShapesToo };
  explicit CallArrays(nanobind::dict arrays, Kind kind = kArrays) : arrays_(std::move(arrays)), kind_(kind) {}

  /// Returns a view of the array `name`. The view has no data if the dictionary has no such name, or maps the name to
  /// None. If the array must be copied, the view has no contents before Complete. `name` must outlive this object.
  [[nodiscard]] TensorView In(const char* name) { return Input(name, /*any_innermost=*/false); }
  /// Works like In for statistics and sinks, which the library reads with any innermost stride.
  [[nodiscard]] TensorView Statistics(const char* name) { return Input(name, /*any_innermost=*/true); }
  /// Works like In for a mask of pairs. If the caller gave a PairMask, sets `pairs` to it, and the view has no data.
  [[nodiscard]] TensorView Mask(const char* name, const PairMask** pairs);
  /// Returns views of the arrays of a Python list, which errors call NAME[0], NAME[1], and so on. A single array counts
  /// as a list of one. The result is empty if the dictionary has no such name, or maps the name to None.
  [[nodiscard]] std::vector<TensorView> List(const char* name);
  /// Returns the string that the dictionary maps `name` to. Returns an empty one for None and for an unknown name.
  [[nodiscard]] std::string Word(const char* name) const;
  /// Returns a view of the output `name`. A broadcast dimension means that the caller could not allocate the output.
  /// Complete then returns kOutOfMemory.
  [[nodiscard]] MutableTensorView Out(const char* name);

  /// Returns whether an input still has to be copied or an output has no memory. The call can then only be checked.
  [[nodiscard]] bool incomplete() const;
  /// Copies the inputs that must be copied. From then on, In and Statistics return views of the copies. Returns
  /// kOutOfMemory if there is no memory for a copy, or if an output has no memory.
  [[nodiscard]] Status Complete();

 private:
  using Array = nanobind::ndarray<nanobind::ro>;

  /// An input array that the call has asked for by name.
  struct Imported {
    const char* name = nullptr;
    Array array;
    TensorView source;  ///< a view of the array itself
    TensorView view;    ///< the view of the array, or of its copy if there is one
    bool wants_copy = false;
    std::unique_ptr<std::byte[]> copy;
  };

  nanobind::object Find(const char* name) const;
  MutableTensorView ShapeOnly(const char* name, const nanobind::object& shape) const;
  TensorView Input(const char* name, bool any_innermost);
  TensorView Import(const char* name, const nanobind::object& object, bool any_innermost);

  nanobind::dict arrays_;
  Kind kind_;
  std::deque<std::string> list_names_;  ///< the names of list elements, to which `name` in inputs_ points
  std::vector<Imported> inputs_;
  std::vector<nanobind::ndarray<>> outputs_;
  const char* without_memory_ = nullptr;  ///< the name of the first output that has no memory
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_ARRAYS_H_
