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

/// The files that a command reads, in memory. Views stay valid as long as this object, which can be moved.
class InputFiles {
 public:
  enum class Read : uint8_t {
    kAll,
    kHeaders,  ///< views have the shape of the file and no data; ReadRows and ReadAll read
  };

  /// `dtype`: the text of --dtype; "" means that the files say the type. Throws UsageError.
  explicit InputFiles(const std::string& dtype, Read read = Read::kAll);

  /// A tensor of any type; absent for an empty path. Throws UsageError, Failure.
  TensorView Load(const char* flag, const std::string& path);
  /// An f32, f16 or bf16 tensor, of the type of --dtype if that is given; with `int8_too` also int8.
  TensorView LoadFloats(const char* flag, const std::string& path, bool int8_too = false);
  TensorView Keep(Tensor tensor);

  /// kHeaders: rows of dimension `axis` of the file that `flag` names, one range after the other. Throws Failure.
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
