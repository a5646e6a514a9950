#ifndef FA_OPS_ROW_COPY_H_
#define FA_OPS_ROW_COPY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fa::ops {

/// One dimension of a row: its size, and its strides in bytes in the tensor that is read and in the one that is
/// written.
struct RowDim {
  int64_t size = 1, from = 0, to = 0;
};

/// A row as runs of bytes that are contiguous in both tensors, in nested loops.
struct RowCopy {
  static constexpr int kLoops = 3;
  int64_t run_bytes = 0;
  std::array<RowDim, kLoops> loops;  ///< outermost first
};

/// Returns the copy of a row with these dimensions, outermost first. Dimensions that are contiguous in both tensors
/// become one run.
[[nodiscard]] RowCopy MakeRowCopy(const std::array<RowDim, RowCopy::kLoops>& dims, int64_t element_bytes);

/// The first bytes of a row in the tensor that is read and in the one that is written.
struct RowPair {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

/// Copies rows. If several rows have one place, the last one remains. The runs of one place in all rows are copied
/// together: neighbours in a cache in chunks then fill a cache line while it is near.
void CopyRows(const RowCopy& copy, std::span<const RowPair> rows);
/// Sets a row to 0.
void ClearRow(const RowCopy& copy, std::byte* to);

}  // namespace fa::ops

#endif  // FA_OPS_ROW_COPY_H_
