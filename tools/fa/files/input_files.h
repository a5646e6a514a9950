#ifndef FA_TOOLS_FA_FILES_INPUT_FILES_H_
#define FA_TOOLS_FA_FILES_INPUT_FILES_H_

#include <deque>
#include <optional>
#include <span>
#include <string>

#include "fa/tensor.h"
#include "files/tensors.h"
#include "npy/npy_rows.h"

namespace fa::tool {

/// The files that a command reads, in memory. If this object is moved, views of its tensors stay valid.
class InputFiles {
 public:
  enum class Read : uint8_t {
    kAll,
    // Views have the shape in the file and no data. The caller reads the data by ReadRows and ReadAll.
    kHeaders,
  };

  /// `dtype` is the value of --dtype, or "" if the files give the type. Throws UsageError.
  explicit InputFiles(const std::string& dtype, Read read = Read::kAll);

  /// Reads a tensor of any type. If the path is empty, the tensor is absent. Throws UsageError or Failure.
  TensorView Load(const char* flag, const std::string& path);
  /// Reads an f32, f16 or bf16 tensor. If --dtype is given, the tensor must have this type. With `int8_too` the tensor
  /// may also be int8.
  TensorView LoadFloats(const char* flag, const std::string& path, bool int8_too = false);
  TensorView Keep(Tensor tensor);

  /// With kHeaders: reads these rows of dimension `axis` of the file that `flag` names, one range after another. Throws
  /// Failure.
  TensorView ReadRows(const char* flag, int axis, std::span<const npy::RowRange> rows);
  TensorView ReadAll(const char* flag);

 private:
  struct Header {
    const char* flag;
    npy::RowReader file;
    DType dtype;
  };
  TensorView Open(const char* flag, const std::string& path);
  [[nodiscard]] const Header& Opened(const char* flag) const;

  Read read_;
  std::deque<Header> headers_;
  std::optional<DType> dtype_;
  std::deque<Tensor> tensors_;  // a deque, because views point into its elements
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_INPUT_FILES_H_
