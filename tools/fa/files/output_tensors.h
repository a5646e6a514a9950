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

/// The dimension of a tensor that lies in parts on ranks.
struct RowAxis {
  int axis = -1;        ///< -1: every rank has all of it
  bool queries = true;  ///< rows of queries; else of keys
  bool pairs = false;   ///< of TND's [N*sum(Sq*Sk)]: what belongs to rows of queries
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
/// Those with a path.
[[nodiscard]] std::vector<OutputSpec> Named(std::vector<OutputSpec> outputs);

/// The tensors that a command writes: first their descriptors in the call, which are enough to plan; then their memory,
/// once the call is known to be valid; then their files, once the call has run.
class OutputTensors {
 public:
  /// Describes the output in `view`, which stays where it is. Throws as OutputFiles::Add.
  void Add(const char* flag, const std::string& path, MutableTensorView& view, DType dtype, std::vector<int64_t> shape);
  void Add(const std::vector<OutputSpec>& outputs);
  /// The same if `path` is not empty.
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
