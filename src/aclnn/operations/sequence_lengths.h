#ifndef FA_ACLNN_SEQUENCE_LENGTHS_H_
#define FA_ACLNN_SEQUENCE_LENGTHS_H_

#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// Returns the integers of a dense i32 or i64 tensor of one dimension.
[[nodiscard]] std::vector<int64_t> IntegersOf(const TensorView& tensor);

/// Returns the number of rows per sequence. If the shape does not fit its layout, returns 0, and the library refuses
/// the call.
[[nodiscard]] int64_t RowsPerSequence(const Dims& shape, Layout layout);
/// Returns the most keys that a sequence has in pages. If a shape has too few dimensions, returns 0.
[[nodiscard]] int64_t MostPagedKeys(const Dims& pages, const Dims& table);

/// Removes the first entry of prefix sums, which must be 0. If there are rows, more entries must follow.
/// @param known  whether the entries are known; otherwise only their number is
/// @return kInvalidArgument: "cuSeqlensQ[0]=2, want 0"
[[nodiscard]] Status DropLeadingZero(const char* name, bool known, int64_t rows, std::vector<int64_t>& sums);

/// The number of rows in use of each sequence of a call. The lengths of an array are known in the first phase. The
/// lengths in a tensor are known only when the stream reaches the operator.
class SequenceLengths {
 public:
  SequenceLengths() = default;  ///< no lengths are given: all rows are in use
  SequenceLengths(const char* name, const aclIntArray* array);
  SequenceLengths(const char* name, const aclTensor* tensor, Operands& operands);

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool in_tensor() const { return slot_ != Operands::kAbsent; }
  /// Returns the lengths. If `memory` is null, a tensor cannot be read yet, and each of its entries counts as `most`.
  [[nodiscard]] std::vector<int64_t> Values(int64_t most, const Operands& operands, const CallMemory* memory) const;

 private:
  Status status_;
  Operands::Slot slot_ = Operands::kAbsent;
  std::vector<int64_t> values_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SEQUENCE_LENGTHS_H_
