#ifndef FA_LAYOUT_STORED_ROWS_H_
#define FA_LAYOUT_STORED_ROWS_H_

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fa/tensor.h"
#include "layout/rows.h"
#include "layout/rows_view.h"

namespace fa::layout {

/// The pages of a call's rows. Page entries[b * row + j] holds rows [j * page_rows, (j + 1) * page_rows) of batch
/// element b.
struct BlockTable {
  const int32_t* entries = nullptr;  ///< the numbers of the pages; null: rows do not lie in pages
  int64_t row = 0;                   ///< number of entries per batch element
  int64_t page_rows = 0;             ///< number of rows per page
  int64_t pages = 0;                 ///< number of pages that exist
};

/// NZ pages store a row in contiguous pieces of this many bytes.
inline constexpr int64_t kPieceBytes = 32;
/// The piece_stride of rows that do not lie in pieces. It is not 0, because pieces of a broadcast dimension have the
/// stride 0.
inline constexpr int64_t kWholeRows = -1;

/// The rows of one head of one batch element or packed sequence. The rows lie evenly apart, in pages, or evenly apart
/// after the rows of a prefix.
struct HeadRows {
  const std::byte* first = nullptr;  ///< row 0; in pages, row 0 of page 0; behind a prefix, row prefix_rows
  DType dtype = DType::kF32;
  int64_t stride = 0;  ///< elements from row to row; in pages, within one page
  /// table[j] is the page that holds the rows from j * page_rows on. Null means that rows do not lie in pages.
  const int32_t* table = nullptr;
  int64_t page_rows = 0, page_stride = 0, pages = 0;  ///< page_stride: elements from page to page
  /// The base-2 logarithm of page_rows if page_rows is a power of two, otherwise -1. Finding the page of a row by a
  /// shift takes less time than by a division.
  int page_shift = -1;
  /// Rows before row prefix_rows begin at `prefix` and lie prefix_stride apart.
  const std::byte* prefix = nullptr;
  int64_t prefix_rows = 0, prefix_stride = 0;
  int64_t piece_stride = kWholeRows;  ///< elements from piece to piece of a row, or kWholeRows

  [[nodiscard]] bool paged() const { return table != nullptr; }
  /// Returns whether the rows may lie in several runs of evenly spaced rows (RunEnd) instead of one.
  [[nodiscard]] bool in_runs() const { return paged() || prefix_rows > 0; }

  /// Returns the number of elements from `first` to a row that does not lie in a prefix.
  [[nodiscard]] int64_t Offset(int64_t row) const {
    assert(row >= 0);
    if (!paged()) return (row - prefix_rows) * stride;
    const int64_t index = IndexOf(row);
    return Page(index) * page_stride + (row - index * page_rows) * stride;
  }
  [[nodiscard]] const std::byte* At(int64_t row) const {
    const auto size = static_cast<int64_t>(SizeOf(dtype));
    return row < prefix_rows ? prefix + row * prefix_stride * size : first + Offset(row) * size;
  }
  /// Returns the elements from a row to the next row of its run.
  [[nodiscard]] int64_t StrideAt(int64_t row) const { return row < prefix_rows ? prefix_stride : stride; }
  /// Returns the end of the run of evenly spaced rows that begins at `row`, at most `end`. In pages, a run ends with
  /// its page, and also where row + fetch_ahead enters another page. So the row to prefetch is at the same offset from
  /// every row of the run.
  [[nodiscard]] int64_t RunEnd(int64_t row, int64_t end, int64_t fetch_ahead) const {
    if (!paged()) return row < prefix_rows ? std::min(end, prefix_rows) : end;
    const int64_t page_end = (IndexOf(row) + 1) * page_rows;
    const int64_t ahead_end = (IndexOf(row + fetch_ahead) + 1) * page_rows - fetch_ahead;
    return std::min({end, page_end, ahead_end});
  }

 private:
  /// Returns the index in the table of the page of a row.
  [[nodiscard]] int64_t IndexOf(int64_t row) const { return page_shift >= 0 ? row >> page_shift : row / page_rows; }
  /// Returns entry `index` of the table, clamped to the pages that exist. Entries are checked before a run. The clamp
  /// keeps addresses inside the pages even if another thread changes the table meanwhile.
  [[nodiscard]] int64_t Page(int64_t index) const {
    assert(pages > 0);
    const auto page = static_cast<uint32_t>(__atomic_load_n(table + index, __ATOMIC_RELAXED));
    return std::min<int64_t>(page, pages - 1);
  }
};

/// The keys or values of a call during a run. Their rows lie in one tensor, in one tensor per batch element, or in
/// pages. In front of the rows of one tensor there may be a prefix that all batch elements share.
struct StoredRows {
  /// One tensor for all batch elements. In pages, view.rows.batch is the stride from page to page.
  RowsView view = {};
  /// One tensor per batch element, and the layout of the rows of each tensor. If the lists are empty, `view` holds all
  /// rows.
  std::span<const TensorView> list = {};
  std::span<const Rows> list_rows = {};
  BlockTable table = {};
  RowsView prefix = {};  ///< the rows of the prefix, at batch index 0
  int64_t prefix_rows = 0;
  int64_t piece_stride = kWholeRows;  ///< as HeadRows::piece_stride

  [[nodiscard]] bool paged() const { return table.entries != nullptr; }
  [[nodiscard]] bool in_one_tensor() const { return !paged() && list.empty() && prefix_rows == 0; }

  /// Returns the rows of a head, beginning at row `offset`. If rows lie in pages, `offset` is not used.
  [[nodiscard]] HeadRows Head(int64_t b, int64_t n, int64_t offset) const {
    assert(b >= 0 && n >= 0);
    if (!list.empty()) {
      const Rows& rows = list_rows[static_cast<size_t>(b)];
      const RowsView own(list[static_cast<size_t>(b)].data, rows);
      return {.first = own.At(0, n, offset), .dtype = rows.dtype, .stride = rows.row};
    }
    HeadRows head{.dtype = view.rows.dtype, .stride = view.rows.row, .piece_stride = piece_stride};
    if (prefix_rows > 0) {
      head.prefix = prefix.At(0, n, 0);
      head.prefix_rows = prefix_rows;
      head.prefix_stride = prefix.rows.row;
    }
    if (view.data == nullptr) return head;  // without keys the pointer is null, and no offset may be added to it
    head.first = paged() ? view.At(0, n, 0) : view.At(b, n, offset);
    if (!paged()) return head;
    head.table = table.entries + b * table.row;
    head.page_rows = table.page_rows;
    const auto rows = static_cast<uint64_t>(table.page_rows);
    if (std::has_single_bit(rows)) head.page_shift = std::countr_zero(rows);
    head.page_stride = view.rows.batch;
    head.pages = table.pages;
    return head;
  }
};

}  // namespace fa::layout

#endif  // FA_LAYOUT_STORED_ROWS_H_
