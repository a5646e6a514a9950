#include "ranks/rows/row_tensor.h"

#include <cstring>

namespace fa::ops {
namespace {

/// Calls visit(offset in bytes, size in bytes) for every contiguous piece of the rows.
template <typename Visit>
void ForPieces(const RowTensor& tensor, tiling::Interval heads, std::span<const tiling::PlacedRows> runs,
               const Visit& visit) {
  const auto element = static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  const int64_t row_bytes = tensor.RowBytes();
  for (int64_t head = heads.begin * tensor.heads_per_kv; head < heads.end * tensor.heads_per_kv; ++head) {
    for (const tiling::PlacedRows& run : runs) {
      const int64_t first = tensor.rows.Offset(0, head, run.at) * element;
      if (tensor.rows.row == tensor.columns) {
        visit(first, run.rows.size() * row_bytes);
        continue;
      }
      for (int64_t row = 0; row < run.rows.size(); ++row) visit(first + row * tensor.rows.row * element, row_bytes);
    }
  }
}

}  // namespace

std::byte* PackRows(const RowTensor& tensor, const std::byte* data, tiling::Interval heads,
                    std::span<const tiling::PlacedRows> runs, std::byte* to) {
  ForPieces(tensor, heads, runs, [&](int64_t offset, int64_t bytes) {
    std::memcpy(to, data + offset, static_cast<size_t>(bytes));
    to += bytes;
  });
  return to;
}

const std::byte* UnpackRows(const RowTensor& tensor, std::byte* data, tiling::Interval heads,
                            std::span<const tiling::PlacedRows> runs, const std::byte* from) {
  const int64_t copy_bytes = tensor.copy_stride * static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  ForPieces(tensor, heads, runs, [&](int64_t offset, int64_t bytes) {
    for (int64_t copy = 0; copy < tensor.copies; ++copy) {
      std::memcpy(data + offset + copy * copy_bytes, from, static_cast<size_t>(bytes));
    }
    from += bytes;
  });
  return from;
}

layout::Rows RowsOfStatistic(const layout::Stats& statistic) {
  return {.dtype = DType::kF32, .batch = statistic.batch, .head = statistic.head, .row = statistic.row};
}

}  // namespace fa::ops
