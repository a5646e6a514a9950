#ifndef FA_OPS_ROW_COPY_H_
#define FA_OPS_ROW_COPY_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace fa::ops {

/// One dimension of a row: its size, and its strides in bytes in the tensor that is read and in the one that is
/// written.
struct RowDim {
  int64_t size = 1, from = 0, to = 0;
};

/// How a row is copied: nested loops over pieces of bytes that are contiguous in both tensors, and the strides between
/// rows.
struct RowCopy {
  static constexpr int kLoops = 3;
  int64_t piece_bytes = 0;
  std::array<RowDim, kLoops> loops;  ///< the loops over a row's pieces, outermost first
  int64_t from_row = 0, to_row = 0;
  bool one_piece = false;  ///< whether a row has one piece, and rows follow one another without gaps in both tensors

  /// Returns whether a row has one piece.
  [[nodiscard]] bool whole_rows() const { return loops[0].size == 1 && loops[1].size == 1 && loops[2].size == 1; }
};

/// Returns the copy of rows with these dimensions, outermost first. Dimensions that are contiguous in both tensors
/// become one piece. `rows` has the strides between rows.
[[nodiscard]] RowCopy MakeRowCopy(const std::array<RowDim, RowCopy::kLoops>& dims, int64_t element_bytes,
                                  const RowDim& rows);

/// Rows that follow one another in both tensors.
struct RowRun {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t rows = 0;
};

/// Copies rows. A few rows are copied together, piece by piece. If the cache keeps rows in chunks, neighbouring rows
/// share its cache lines, and each line is filled while it is in L1.
void CopyRows(const RowCopy& copy, const RowRun& run);
/// Sets rows to 0.
void ClearRows(const RowCopy& copy, std::byte* to, int64_t rows);

}  // namespace fa::ops

#endif  // FA_OPS_ROW_COPY_H_
