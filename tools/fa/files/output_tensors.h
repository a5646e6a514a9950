#ifndef FA_TOOLS_FA_FILES_OUTPUT_TENSORS_H_
#define FA_TOOLS_FA_FILES_OUTPUT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "files/output_files.h"
#include "files/tensors.h"

namespace fa::tool {

/// The tensors a command writes: their descriptors in the call first, which is enough to plan; their memory once the
/// call is known to be valid; their files once it has run.
class OutputTensors {
 public:
  /// Describes the output in `view`, which stays where it is. Throws as OutputFiles::Add.
  void Add(const char* flag, const std::string& path, MutableTensorView& view, DType dtype, std::vector<int64_t> shape);
  /// The same where the flag is given.
  void AddIfNamed(const char* flag, const std::string& path, MutableTensorView& view, DType dtype,
                  std::vector<int64_t> shape);
  void Allocate();
  void Commit() { files_.Commit(); }

 private:
  struct Output {
    MutableTensorView& view;
    DType dtype;
    std::vector<int64_t> shape;
    size_t file;
    Tensor tensor = {};
  };
  OutputFiles files_;
  std::deque<Output> outputs_;  // a deque, because files point to its arrays
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_OUTPUT_TENSORS_H_
