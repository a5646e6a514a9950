#ifndef FA_PYTHON_BINDING_ARRAYS_H_
#define FA_PYTHON_BINDING_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::python {

/// Throws what Python raises for a status that is not ok: ValueError, MemoryError or RuntimeError, with its message.
void Raise(const Status& status);

/// The value named `name` ("f32", "bf16", ...) among `choices` of an enumeration that fa::Name knows.
template <typename Enum, typename Choices>
Enum Named(const char* argument, const std::string& name, const Choices& choices) {
  std::string want;
  for (const Enum choice : choices) {
    if (name == Name(choice)) return choice;
    want += (want.empty() ? "" : ", ") + std::string(Name(choice));
  }
  Raise(Status::InvalidArgument(std::string(argument) + "=\"" + name + "\", want one of " + want));
  return {};
}

/// The arrays of one call, by name, as the library wants them: memory is shared by DLPack or the buffer protocol. It
/// takes strides as they are, but for negative ones and an innermost one that is not 1: such an input is packed.
/// Keeps what it hands out alive.
class CallArrays {
 public:
  /// @param shapes_dtype  a tuple in place of an array is a shape, of this type and without contents (for plans)
  explicit CallArrays(nanobind::dict arrays, std::optional<DType> shapes_dtype = {})
      : arrays_(std::move(arrays)), shapes_dtype_(shapes_dtype) {}

  /// A view without data if there is none of that name, or None.
  [[nodiscard]] TensorView In(const char* name);
  /// As In, for the statistics: the library takes any innermost stride of theirs.
  [[nodiscard]] TensorView Statistics(const char* name);
  [[nodiscard]] MutableTensorView Out(const char* name);

 private:
  using Array = nanobind::ndarray<nanobind::ro>;

  nanobind::object Find(const char* name) const;
  MutableTensorView ShapeOnly(const char* name, const nanobind::object& shape) const;
  TensorView Import(const char* name);
  TensorView Packed(const TensorView& view);

  nanobind::dict arrays_;
  std::optional<DType> shapes_dtype_;
  std::vector<Array> held_;
  std::vector<nanobind::ndarray<>> held_outputs_;
  std::vector<std::unique_ptr<std::byte[]>> packed_;
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_ARRAYS_H_
