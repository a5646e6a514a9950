#ifndef FA_ACLNN_SEQUENCE_STATISTICS_H_
#define FA_ACLNN_SEQUENCE_STATISTICS_H_

#include <cstdint>
#include <span>

#include "aclnn/runtime/operands.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// Statistics of packed sequences in the device's order. The tensors are declared [T,N,8], but each sequence is a block
/// [N,Sq_b,8], one block after the other. The eight values of a row are equal. The library's order is [T,N], so the
/// library gets tensors in the workspace. The values are copied between these tensors and the caller's.
class SequenceStatistics {
 public:
  struct Blocks {
    TensorView max, sum;
  };

  /// Whether the operator reads the caller's tensors, or WriteBlocks writes them.
  enum class Role : uint8_t { kRead, kWritten };

  /// Checks the caller's tensors (f32 [T,N,8]) against query [T,N,D] and reserves memory for the library's tensors.
  /// `cu_q` must outlive this object.
  [[nodiscard]] Status Bind(const TensorView& query, const Blocks& blocks, Role role, std::span<const int64_t> cu_q,
                            Operands& operands);

  /// Max and Sum return the library's tensors, f32 [T,N].
  [[nodiscard]] MutableTensorView Max(const CallMemory* memory) const;
  [[nodiscard]] MutableTensorView Sum(const CallMemory* memory) const;

  /// WriteBlocks and ReadBlocks need prefix sums that have been checked.
  void WriteBlocks(const MutableTensorView& max, const MutableTensorView& sum, const CallMemory& memory) const;
  void ReadBlocks(const Blocks& blocks, const CallMemory& memory) const;

 private:
  /// Calls visit(unit, index in [T,N]) for every value, where `unit` is the value's place in the caller's tensor. Rows
  /// past the last sequence have the same place in both tensors.
  template <typename Visit>
  void ForEachValue(const Visit& visit) const;
  void Write(const TensorView& rows, const MutableTensorView& blocks) const;
  void Read(const TensorView& blocks, const MutableTensorView& rows) const;

  std::span<const int64_t> cu_q_;
  int64_t tokens_ = 0, heads_ = 0;
  size_t max_at_ = 0, sum_at_ = 0;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SEQUENCE_STATISTICS_H_
