#include "ops/cache/row_copy.h"

#include <cstring>

namespace fa::ops {
namespace {

// Copies with a size that the compiler knows become a few moves.
template <int64_t kBytes>
void CopyRunsOf(std::span<const RowPair> rows, int64_t from, int64_t to) {
  for (const RowPair& row : rows) std::memcpy(row.to + to, row.from + from, kBytes);
}

void CopyRuns(std::span<const RowPair> rows, int64_t from, int64_t to, int64_t bytes) {
  switch (bytes) {
    case 1: return CopyRunsOf<1>(rows, from, to);
    case 2: return CopyRunsOf<2>(rows, from, to);
    case 4: return CopyRunsOf<4>(rows, from, to);
    case 8: return CopyRunsOf<8>(rows, from, to);
    case 32: return CopyRunsOf<32>(rows, from, to);  // a chunk of the device's caches in chunks
    default:
      for (const RowPair& row : rows) std::memcpy(row.to + to, row.from + from, static_cast<size_t>(bytes));
  }
}

// Calls visit(from, to) for each run of a row, with offsets in bytes.
template <typename Visit>
void ForEachRun(const RowCopy& copy, const Visit& visit) {
  const auto& [outer, middle, inner] = copy.loops;
  for (int64_t x = 0; x < outer.size; ++x) {
    for (int64_t y = 0; y < middle.size; ++y) {
      for (int64_t z = 0; z < inner.size; ++z) {
        visit(x * outer.from + y * middle.from + z * inner.from, x * outer.to + y * middle.to + z * inner.to);
      }
    }
  }
}

}  // namespace

RowCopy MakeRowCopy(const std::array<RowDim, RowCopy::kLoops>& dims, int64_t element_bytes) {
  RowCopy copy{.run_bytes = element_bytes, .loops = dims};
  for (int i = RowCopy::kLoops; i-- > 0;) {
    RowDim& dim = copy.loops[static_cast<size_t>(i)];
    if (dim.size != 1 && (dim.size == 0 || dim.from != copy.run_bytes || dim.to != copy.run_bytes)) break;
    copy.run_bytes *= dim.size;
    dim = {};
  }
  return copy;
}

void CopyRows(const RowCopy& copy, std::span<const RowPair> rows) {
  ForEachRun(copy, [&](int64_t from, int64_t to) { CopyRuns(rows, from, to, copy.run_bytes); });
}

void ClearRow(const RowCopy& copy, std::byte* row) {
  ForEachRun(copy,
             [&](int64_t /*from*/, int64_t to) { std::memset(row + to, 0, static_cast<size_t>(copy.run_bytes)); });
}

}  // namespace fa::ops
