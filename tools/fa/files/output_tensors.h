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
  int axis = -1;        ///< the dimension; -1 if every rank has the whole tensor
  bool queries = true;  ///< whether the rows are rows of queries; otherwise they are rows of keys
  /// Whether this is a TND tensor [N*sum(Sq*Sk)] with one element per head, query row and key. Ranks divide it by query
  /// rows.
  bool pairs = false;
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
/// Returns the outputs for which a file is named.
[[nodiscard]] std::vector<OutputSpec> Named(std::vector<OutputSpec> outputs);

/// The tensors that a command writes. At first the call has only their views without memory, which are enough to plan.
/// When the call is known to be valid, the tensors get memory. After the call the tensors are written to their files.
class OutputTensors {
 public:
  /// Makes `view` describe the output. The view must stay at its address. Throws what OutputFiles::Add throws.
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
