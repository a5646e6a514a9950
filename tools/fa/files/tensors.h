#ifndef FA_TOOLS_FA_FILES_TENSORS_H_
#define FA_TOOLS_FA_FILES_TENSORS_H_

#include <optional>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "npy/npy_array.h"

namespace fa::tool {

/// A file's array, or one that becomes a file, with the library's element type.
struct Tensor {
  npy::Array array;
  DType dtype = DType::kF32;

  [[nodiscard]] TensorView View() const;
  [[nodiscard]] MutableTensorView MutableView();
};

/// Reads the file of `flag`. uint16 is bf16 if `dtype` says so, and an error otherwise.
[[nodiscard]] Tensor LoadTensor(const char* flag, const std::string& path, std::optional<DType> dtype);
/// The same for query, key and value: f32, f16 or bf16, and `dtype` where it is given; or int8.
[[nodiscard]] Tensor LoadActivations(const char* flag, const std::string& path, std::optional<DType> dtype,
                                     bool int8_too = false);
/// A tensor that is not initialised.
[[nodiscard]] Tensor NewTensor(DType dtype, std::vector<int64_t> shape);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_TENSORS_H_
