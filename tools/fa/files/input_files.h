#ifndef FA_TOOLS_FA_FILES_INPUT_FILES_H_
#define FA_TOOLS_FA_FILES_INPUT_FILES_H_

#include <deque>
#include <optional>
#include <string>

#include "fa/tensor.h"
#include "files/tensors.h"

namespace fa::tool {

/// The files that a command reads, in memory. Views stay valid as long as this object, which can be moved.
class InputFiles {
 public:
  /// `dtype`: the text of --dtype; "" means that the files say the type. Throws UsageError.
  explicit InputFiles(const std::string& dtype);

  /// A tensor of any type; absent for an empty path. Throws UsageError, Failure.
  TensorView Load(const char* flag, const std::string& path);
  /// An f32, f16 or bf16 tensor, of the type of --dtype if that is given; with `int8_too` also int8.
  TensorView LoadFloats(const char* flag, const std::string& path, bool int8_too = false);
  TensorView Keep(Tensor tensor);

 private:
  std::optional<DType> dtype_;
  std::deque<Tensor> tensors_;  // a deque, because views point into its elements
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_INPUT_FILES_H_
