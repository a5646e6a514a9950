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
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::python {

/// Throws the Python exception of a status that is not ok: ValueError, MemoryError or RuntimeError, with its message.
/// The exception's attribute `parts` is the message in pieces: words, and (name, member, index) for an argument.
void Raise(const Status& status);
/// Throws a Python exception of this type, which has the attribute `parts` too.
[[noreturn]] void Raise(PyObject* type, const ErrorText& error, std::string_view prefix = {});

/// Returns the words for an argument in an error, or for an element of an argument that is a list, such as "k[1]".
ErrorText Arg(std::string_view name, std::string_view member = {});

/// Returns the value named `name` ("f32", "bf16", ...) among `choices` of an enumeration that fa::Name knows.
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

/// Returns the memory that a DLTensor describes. Returns nothing if the memory is not the CPU's, or if its type is none
/// of the library's types.
std::optional<MutableTensorView> ViewOf(const nanobind::dlpack::dltensor& tensor);

/// Returns whether `view` must be copied because the library cannot read it in place. With any_innermost the innermost
/// stride may be any number, as for statistics.
bool WantsCopy(const TensorView& view, bool any_innermost);

/// The arrays of one call, by name, in the form that the library takes. Memory is shared by DLPack or the buffer
/// protocol, and strides are taken as they are. The library cannot read an input with a negative stride, an innermost
/// stride that is not 1, or elements that are not aligned. Such an input is copied after the call is known to be valid
/// (RunChecked). The object keeps the memory of its views alive.
class CallArrays {
 public:
  /// With kShapesToo a tuple ("f32", size, ...) may stand in place of an array. Such a tuple gives a type and a shape
  /// without contents, which is enough for plans.
  enum Kind : uint8_t { kArrays, kShapesToo };
  explicit CallArrays(nanobind::dict arrays, Kind kind = kArrays) : arrays_(std::move(arrays)), kind_(kind) {}

  /// Returns the array of this name, or a view without data if the dictionary has None or nothing under this name. If
  /// the array has to be copied, its view has no contents before Complete. `name` must outlive this object.
  [[nodiscard]] TensorView In(const char* name) { return Input(name, /*any_innermost=*/false); }
  /// Works like In, but for statistics, for which the library takes any innermost stride.
  [[nodiscard]] TensorView Statistics(const char* name) { return Input(name, /*any_innermost=*/true); }
  /// Returns the arrays of a Python list, which errors call NAME[0], NAME[1], ... A single array counts as a list of
  /// one array. The result is empty if the dictionary has None or nothing under this name.
  [[nodiscard]] std::vector<TensorView> List(const char* name);
  /// Returns the output of this name. An output with a broadcast dimension stands for memory that could not be
  /// allocated, see Complete.
  [[nodiscard]] MutableTensorView Out(const char* name);

  /// Returns whether some views have no contents or no memory yet, so that the call can be checked but not run.
  [[nodiscard]] bool incomplete() const;
  /// Makes the copies, which In and Statistics return from now on. Returns kOutOfMemory if there is no memory for the
  /// copies, or if an output has no memory.
  [[nodiscard]] Status Complete();

 private:
  using Array = nanobind::ndarray<nanobind::ro>;

  /// An array that the call has asked for.
  struct Imported {
    const char* name = nullptr;
    Array array;
    TensorView source;  ///< the array itself
    TensorView view;    ///< the view that the call gets
    bool wants_copy = false;
    std::unique_ptr<std::byte[]> copy;
  };

  nanobind::object Find(const char* name) const;
  MutableTensorView ShapeOnly(const char* name, const nanobind::object& shape) const;
  TensorView Input(const char* name, bool any_innermost);
  TensorView Import(const char* name, const nanobind::object& object, bool any_innermost);

  nanobind::dict arrays_;
  Kind kind_;
  std::deque<std::string> list_names_;  ///< the texts to which names in inputs_ point
  std::vector<Imported> inputs_;
  std::vector<nanobind::ndarray<>> outputs_;
  const char* without_memory_ = nullptr;  ///< name of the first output without memory
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_ARRAYS_H_
