#ifndef FA_TOOLS_FA_FILES_TENSORS_H_
#define FA_TOOLS_FA_FILES_TENSORS_H_

#include <optional>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "npy/npy_array.h"

namespace fa::tool {

/// The array of a file that was read or will be written, with the library's element type.
struct Tensor {
  npy::Array array;
  DType dtype = DType::kF32;

  [[nodiscard]] TensorView View() const;
  [[nodiscard]] MutableTensorView MutableView();
};

/// Reads the file that `flag` names. uint16 is bf16 if `dtype` says so, and otherwise an error.
[[nodiscard]] Tensor LoadTensor(const char* flag, const std::string& path, std::optional<DType> dtype);
/// Reads a query, key or value: f32, f16 or bf16, which must be `dtype` if that is given. With `int8_too` int8 is
/// allowed.
[[nodiscard]] Tensor LoadActivations(const char* flag, const std::string& path, std::optional<DType> dtype,
                                     bool int8_too = false);
/// The library's type of a file's elements. uint16 is bf16 if `dtype` says so. Throws UsageError naming the flag.
[[nodiscard]] DType DTypeOf(const char* flag, npy::ElementType type, std::optional<DType> dtype);
/// Throws UsageError unless the element type is one of a query, key or value (LoadActivations).
void CheckActivations(const char* flag, npy::ElementType type, std::optional<DType> dtype, bool int8_too = false);
/// The file's type for elements of this type.
[[nodiscard]] npy::ElementType ElementTypeOf(DType dtype);
/// A tensor that is not initialised.
[[nodiscard]] Tensor NewTensor(DType dtype, std::vector<int64_t> shape);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_TENSORS_H_
