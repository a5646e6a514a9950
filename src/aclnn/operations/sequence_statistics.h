#ifndef FA_ACLNN_SEQUENCE_STATISTICS_H_
#define FA_ACLNN_SEQUENCE_STATISTICS_H_

#include <cstdint>
#include <span>

#include "aclnn/runtime/operands.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// The device's order of packed statistics. Declared [T,N,8], they hold one block [N,Sq_b,8] per sequence, one after
/// another: value (b, n, i) stands at unit prefix(b) N + n Sq_b + i, a unit being eight equal copies. The library's own
/// order is [T,N]: it gets such tensors in the workspace, and the values are copied between these and the caller's
/// tensors.
class SequenceStatistics {
 public:
  struct Blocks {
    TensorView max, sum;
  };

  /// Whether the caller's tensors are written by the operator, by WriteBlocks, or not at all.
  enum class Role : uint8_t { kRead, kWritten };

  /// Checks the caller's tensors (f32 [T,N,8]) against query [T,N,D] and books the library's. `cu_q` outlives this.
  [[nodiscard]] Status Bind(const TensorView& query, const Blocks& blocks, Role role, std::span<const int64_t> cu_q,
                            Operands& operands);

  /// f32 [T,N].
  [[nodiscard]] MutableTensorView Max(const CallMemory* memory) const;
  [[nodiscard]] MutableTensorView Sum(const CallMemory* memory) const;

  /// For checked prefix sums.
  void WriteBlocks(const MutableTensorView& max, const MutableTensorView& sum, const CallMemory& memory) const;
  void ReadBlocks(const Blocks& blocks, const CallMemory& memory) const;

 private:
  /// visit(unit, index in [T,N]) for every value; rows past the last sequence stand where they are.
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
