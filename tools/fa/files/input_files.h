#ifndef FA_TOOLS_FA_FILES_INPUT_FILES_H_
#define FA_TOOLS_FA_FILES_INPUT_FILES_H_

#include <deque>
#include <optional>
#include <string>

#include "fa/tensor.h"
#include "files/tensors.h"

namespace fa::tool {

/// The files a command reads, in memory. Views stay valid as long as the object, which can be moved.
class InputFiles {
 public:
  /// `dtype`: the flag's text, "" where the files say it. Throws UsageError.
  explicit InputFiles(const std::string& dtype);

  /// Of any type; absent for an empty path. Throws UsageError, Failure.
  TensorView Load(const char* flag, const std::string& path);
  /// f32, f16 or bf16, as --dtype says where it is given; int8 too where it may be.
  TensorView LoadFloats(const char* flag, const std::string& path, bool int8_too = false);
  TensorView Keep(Tensor tensor);

 private:
  std::optional<DType> dtype_;
  std::deque<Tensor> tensors_;  // a deque, because views point into its elements
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_INPUT_FILES_H_
