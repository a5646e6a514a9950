#ifndef FA_RANKS_ROWS_ROW_TENSOR_H_
#define FA_RANKS_ROWS_ROW_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/rows.h"
#include "ranks/plan/rank_plan.h"

namespace fa::ops {

/// The layout of a tensor whose rows are sent between ranks, within one batch element. A RowTensor has no address.
struct RowTensor {
  tiling::RowAxis axis = tiling::RowAxis::kQuery;
  int64_t heads_per_kv = 1;  ///< number of heads of the tensor per kv head: the group for tensors of queries, else 1
  int64_t columns = 0;
  layout::Rows rows = {};               ///< layout of the rows; rows.batch is not used
  int64_t copies = 1, copy_stride = 0;  ///< a statistic may have several equal copies (layout::Stats)

  [[nodiscard]] int64_t RowBytes() const { return columns * static_cast<int64_t>(SizeOf(rows.dtype)); }
  /// Returns the size in bytes of `count` rows of one kv head.
  [[nodiscard]] int64_t HeadBytes(int64_t count) const { return heads_per_kv * count * RowBytes(); }
};

/// Copies the rows of the kv heads `heads` to consecutive bytes: head after head, and in each head the intervals of
/// rows in their order.
/// @param data  address of kv head 0
/// @return the address after the last byte written
std::byte* PackRows(const RowTensor& tensor, const std::byte* data, tiling::Interval heads,
                    std::span<const tiling::PlacedRows> runs, std::byte* to);
/// Copies consecutive bytes to rows of the tensor.
/// @return the address after the last byte read
const std::byte* UnpackRows(const RowTensor& tensor, std::byte* data, tiling::Interval heads,
                            std::span<const tiling::PlacedRows> runs, const std::byte* from);

/// Returns the layout of a statistic as rows. Each row is one f32.
[[nodiscard]] layout::Rows RowsOfStatistic(const layout::Stats& statistic);

}  // namespace fa::ops

#endif  // FA_RANKS_ROWS_ROW_TENSOR_H_
