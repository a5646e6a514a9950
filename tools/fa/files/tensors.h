#ifndef FA_TOOLS_FA_FILES_TENSORS_H_
#define FA_TOOLS_FA_FILES_TENSORS_H_

#include <optional>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "npy/npy_array.h"

namespace fa::tool {

/// The array of a file that was read or is to be written, with the library's element type.
struct Tensor {
  npy::Array array;
  DType dtype = DType::kF32;

  [[nodiscard]] TensorView View() const;
  [[nodiscard]] MutableTensorView MutableView();
};

/// Reads the file that `flag` names. A uint16 file counts as bf16 if `dtype` is bf16, and is an error otherwise.
[[nodiscard]] Tensor LoadTensor(const char* flag, const std::string& path, std::optional<DType> dtype);
/// Reads a query, key or value. The type must be f32, f16 or bf16. If `dtype` has a value, the type must be `dtype`.
/// With `int8_too` the type may also be int8.
[[nodiscard]] Tensor LoadActivations(const char* flag, const std::string& path, std::optional<DType> dtype,
                                     bool int8_too = false);
/// Returns the library's type for a file's elements. uint16 means bf16 if `dtype` is bf16. Throws UsageError that names
/// the flag.
[[nodiscard]] DType DTypeOf(const char* flag, npy::ElementType type, std::optional<DType> dtype);
/// Throws UsageError unless LoadActivations would accept this element type.
void CheckActivations(const char* flag, npy::ElementType type, std::optional<DType> dtype, bool int8_too = false);
/// Returns the element type of a file that holds elements of `dtype`.
[[nodiscard]] npy::ElementType ElementTypeOf(DType dtype);
/// Returns a tensor that is not initialised.
[[nodiscard]] Tensor NewTensor(DType dtype, std::vector<int64_t> shape);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_TENSORS_H_
