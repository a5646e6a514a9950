#ifndef FA_OPS_PAGE_TABLE_H_
#define FA_OPS_PAGE_TABLE_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// Entry `index` of a block table, kept within `pages` pages, at least one. Entries are checked before a run; but even
/// if another thread writes to the table meanwhile, no address leaves the pages.
[[nodiscard]] inline int64_t PageAt(const int32_t* table, int64_t index, int64_t pages) {
  assert(index >= 0 && pages > 0);
  const auto page = static_cast<uint32_t>(__atomic_load_n(table + index, __ATOMIC_RELAXED));
  return std::min<int64_t>(page, pages - 1);
}

/// Rows of one head in pages: row j is row j % size of page table[j / size].
struct PageTable {
  const int32_t* table = nullptr;  ///< null: rows lie evenly apart, not in pages
  int64_t size = 0;                ///< rows per page
  int64_t stride = 0;              ///< elements from page to page
  int64_t rows = 0;                ///< of the head
  int64_t pages = 1;               ///< pages that exist

  /// The rows from `row` on, evenly apart up to RunEnd. `first`: row 0 of page 0; what it fetches ahead is counted in
  /// rows of the head.
  [[nodiscard]] core::kernels::RowBlock At(core::kernels::RowBlock first, int64_t row) const {
    assert(row >= 0 && row < rows);
    const int64_t at = Offset(first, row);
    const int64_t ahead = row + first.fetch_ahead;
    // If the distance of pages is no multiple of a row's, fetching is left to the hardware.
    const int64_t distance = first.stride > 0 && ahead < rows ? Offset(first, ahead) - at : 0;
    first.fetch_ahead = distance != 0 && distance % first.stride == 0 ? distance / first.stride : 0;
    first.data = static_cast<const std::byte*>(first.data) + at * static_cast<int64_t>(SizeOf(first.dtype));
    return first;
  }
  /// Where the run of rows that begins at `row` ends, at most at `end`: at the end of its page, or where the rows
  /// fetched ahead enter another page.
  [[nodiscard]] int64_t RunEnd(int64_t row, int64_t end, int64_t fetch_ahead) const {
    const int64_t page_end = (row / size + 1) * size;
    const int64_t ahead_end = ((row + fetch_ahead) / size + 1) * size - fetch_ahead;
    return std::min({end, page_end, ahead_end});
  }

 private:
  [[nodiscard]] int64_t Offset(const core::kernels::RowBlock& first, int64_t row) const {
    return PageAt(table, row / size, pages) * stride + row % size * first.stride;
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_PAGE_TABLE_H_
