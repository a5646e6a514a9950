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

/// Throws what Python raises for a status that is not ok: ValueError, MemoryError or RuntimeError, with its message.
/// Its attribute `parts` is the message in pieces: words, and (name, member, index) for an argument.
void Raise(const Status& status);
/// Throws a Python exception of that type, likewise.
[[noreturn]] void Raise(PyObject* type, const ErrorText& error, std::string_view prefix = {});

/// An argument in an error, or an element of one that is a list: "k[1]".
ErrorText Arg(std::string_view name, std::string_view member = {});

/// The value named `name` ("f32", "bf16", ...) among `choices` of an enumeration that fa::Name knows.
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

/// Strides of an array without gaps, outermost dimension first.
Dims DenseStride(const Dims& shape);

/// What a DLTensor describes; nothing if that is not memory of the CPU in a type of the library's.
std::optional<MutableTensorView> ViewOf(const nanobind::dlpack::dltensor& tensor);

/// Whether the library cannot read `view` in place. any_innermost: as it reads statistics.
bool WantsCopy(const TensorView& view, bool any_innermost);

/// The arrays of one call, by name, as the library wants them: memory is shared by DLPack or the buffer protocol, and
/// strides are taken as they are. An input that the library cannot read in place (a negative stride, an innermost one
/// that is not 1, elements that are not aligned) is copied once the call is known to be right: see RunChecked. The
/// object keeps what it hands out alive.
class CallArrays {
 public:
  /// kShapesToo: a tuple in place of an array, ("f32", size, ...), is a type and a shape without contents (for plans).
  enum Kind : uint8_t { kArrays, kShapesToo };
  explicit CallArrays(nanobind::dict arrays, Kind kind = kArrays) : arrays_(std::move(arrays)), kind_(kind) {}

  /// The array of that name; a view without data if the dictionary has None or nothing under it. The view of an array
  /// that has to be copied has no contents yet. `name` must outlive this object.
  [[nodiscard]] TensorView In(const char* name) { return Input(name, /*any_innermost=*/false); }
  /// As In, for the statistics, of which the library takes any innermost stride.
  [[nodiscard]] TensorView Statistics(const char* name) { return Input(name, /*any_innermost=*/true); }
  /// The arrays of a Python list, which errors call NAME[0], NAME[1], ...; one array instead of a list is a list of
  /// one. Empty if the dictionary has None or nothing under that name.
  [[nodiscard]] std::vector<TensorView> List(const char* name);
  /// An output whose elements coincide stands for memory that could not be had.
  [[nodiscard]] MutableTensorView Out(const char* name);

  /// Whether views were handed out that hold only until the call is checked.
  [[nodiscard]] bool incomplete() const;
  /// Completes these views: In and Statistics return the copies from now on. kOutOfMemory, also if an output has no
  /// memory.
  [[nodiscard]] Status Complete();

 private:
  using Array = nanobind::ndarray<nanobind::ro>;

  /// An array that was requested.
  struct Imported {
    const char* name = nullptr;
    Array array;
    TensorView source;  ///< as the array lies
    TensorView view;    ///< as it is handed out
    bool wants_copy = false;
    std::unique_ptr<std::byte[]> copy;
  };

  nanobind::object Find(const char* name) const;
  MutableTensorView ShapeOnly(const char* name, const nanobind::object& shape) const;
  TensorView Input(const char* name, bool any_innermost);
  TensorView Import(const char* name, const nanobind::object& object, bool any_innermost);

  nanobind::dict arrays_;
  Kind kind_;
  std::deque<std::string> list_names_;  ///< that inputs_ refer to
  std::vector<Imported> inputs_;
  std::vector<nanobind::ndarray<>> outputs_;
  const char* without_memory_ = nullptr;  ///< the first such output
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_ARRAYS_H_
