#include "ops/cache/row_copy.h"

#include <algorithm>
#include <cstring>

#include "core/saturating.h"

namespace fa::ops {
namespace {

// The number of rows that are copied together, piece by piece. In a paged cache, eight neighbouring chunks of 32 bytes
// (the device's size) fill whole lines of memory. The eight lines that are read stay in L1 until the second chunk of
// each line is read.
constexpr int64_t kTogether = 8;

// Copies one piece of each row. A size that the compiler knows becomes a few moves.
template <int64_t kBytes>
void CopyPiecesOf(const RowCopy& copy, const std::byte* from, std::byte* to, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) std::memcpy(to + row * copy.to_row, from + row * copy.from_row, kBytes);
}

void CopyPieces(const RowCopy& copy, const std::byte* from, std::byte* to, int64_t rows) {
  switch (copy.piece_bytes) {
    case 1: return CopyPiecesOf<1>(copy, from, to, rows);
    case 2: return CopyPiecesOf<2>(copy, from, to, rows);
    case 4: return CopyPiecesOf<4>(copy, from, to, rows);
    case 8: return CopyPiecesOf<8>(copy, from, to, rows);
    case 32: return CopyPiecesOf<32>(copy, from, to, rows);
    case 128: return CopyPiecesOf<128>(copy, from, to, rows);
    case 256: return CopyPiecesOf<256>(copy, from, to, rows);
    default:
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(to + row * copy.to_row, from + row * copy.from_row, static_cast<size_t>(copy.piece_bytes));
      }
  }
}

// Calls visit(from, to) for each piece of a row, with offsets in bytes.
template <typename Visit>
void ForEachPiece(const RowCopy& copy, const Visit& visit) {
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

RowCopy MakeRowCopy(const std::array<RowDim, RowCopy::kLoops>& dims, int64_t element_bytes, const RowDim& rows) {
  RowCopy copy{.piece_bytes = element_bytes, .loops = dims, .from_row = rows.from, .to_row = rows.to};
  bool whole = true;
  for (int i = RowCopy::kLoops; i-- > 0 && whole;) {
    RowDim& dim = copy.loops[static_cast<size_t>(i)];
    whole = dim.size == 1 || (dim.size > 0 && dim.from == copy.piece_bytes && dim.to == copy.piece_bytes);
    if (!whole) break;
    copy.piece_bytes = core::SaturatedProduct(copy.piece_bytes, dim.size);
    dim = {};
  }
  copy.one_piece = whole && copy.from_row == copy.piece_bytes && copy.to_row == copy.piece_bytes;
  return copy;
}

void CopyRows(const RowCopy& copy, const RowRun& run) {
  if (copy.one_piece) {
    std::memcpy(run.to, run.from, static_cast<size_t>(run.rows * copy.piece_bytes));
    return;
  }
  for (int64_t row = 0; row < run.rows; row += kTogether) {
    const int64_t rows = std::min(kTogether, run.rows - row);
    const std::byte* from = run.from + row * copy.from_row;
    std::byte* to = run.to + row * copy.to_row;
    ForEachPiece(
        copy, [&](int64_t from_piece, int64_t to_piece) { CopyPieces(copy, from + from_piece, to + to_piece, rows); });
  }
}

void ClearRows(const RowCopy& copy, std::byte* to, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    ForEachPiece(copy, [&](int64_t /*from*/, int64_t to_piece) {
      std::memset(to + row * copy.to_row + to_piece, 0, static_cast<size_t>(copy.piece_bytes));
    });
  }
}

}  // namespace fa::ops
