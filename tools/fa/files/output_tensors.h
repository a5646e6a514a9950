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

/// The dimension along which a tensor is divided among ranks.
struct RowAxis {
  int axis = -1;        ///< -1: every rank has the whole tensor
  bool queries = true;  ///< rows of queries; otherwise rows of keys
  bool pairs = false;   ///< elements of TND's [N*sum(Sq*Sk)], which belong to rows of queries
};

/// One tensor that a command writes.
struct OutputSpec {
  const char* flag;
  std::string path;
  MutableTensorView* view;
  DType dtype;
  std::vector<int64_t> shape;
  RowAxis rows;
};
/// The outputs that have a path.
[[nodiscard]] std::vector<OutputSpec> Named(std::vector<OutputSpec> outputs);

/// The tensors that a command writes. First come their descriptors in the call, which are enough to plan. When the call
/// is known to be valid, they get memory. After the call they are written to their files.
class OutputTensors {
 public:
  /// Describes the output in `view`, which stays at its address. Throws as OutputFiles::Add.
  void Add(const char* flag, const std::string& path, MutableTensorView& view, DType dtype, std::vector<int64_t> shape);
  void Add(const std::vector<OutputSpec>& outputs);
  /// Adds the output if `path` is not empty.
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
