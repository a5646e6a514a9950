#ifndef FA_ACLNN_SEQUENCE_STATISTICS_H_
#define FA_ACLNN_SEQUENCE_STATISTICS_H_

#include <cstdint>
#include <span>

#include "aclnn/runtime/operands.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// Statistics in the device's order for packed sequences. Such statistics are declared [T,N,8] but hold one block
/// [N,Sq_b,8] per sequence, in the order of the sequences. Value (b, n, i) stands at unit prefix(b) N + n Sq_b + i,
/// where a unit is eight equal copies. The library's own order is [T,N]. The library gets [T,N] tensors in the
/// workspace. The values are copied between these tensors and the caller's tensors.
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
  /// Calls visit(unit, index in [T,N]) for every value. Rows past the last sequence keep their place.
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
