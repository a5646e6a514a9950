#ifndef FA_OPS_PAGE_TABLE_H_
#define FA_OPS_PAGE_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// Rows of one head in pages: row j is row j % size of page table[j / size]. Entries are checked.
struct PageTable {
  const int32_t* table = nullptr;  ///< null: rows lie evenly apart, not in pages
  int64_t size = 0;                ///< rows a page
  int64_t stride = 0;              ///< elements from page to page
  int64_t rows = 0;                ///< of the head

  /// The rows from `row` on, evenly apart up to RunEnd. `pages`: row 0 of page 0; what it fetches ahead is counted in
  /// rows of the head.
  [[nodiscard]] core::kernels::RowBlock At(core::kernels::RowBlock pages, int64_t row) const {
    const int64_t at = Offset(pages, row);
    const int64_t ahead = row + pages.fetch_ahead;
    // Pages whose distance is no multiple of a row's are left to the hardware.
    const int64_t distance = pages.stride > 0 && ahead < rows ? Offset(pages, ahead) - at : 0;
    pages.fetch_ahead = distance != 0 && distance % pages.stride == 0 ? distance / pages.stride : 0;
    pages.data = static_cast<const std::byte*>(pages.data) + at * static_cast<int64_t>(SizeOf(pages.dtype));
    return pages;
  }
  /// Where the run of rows that begins at `row` ends, at most at `end`: with its page, or where the rows fetched ahead
  /// turn to another one.
  [[nodiscard]] int64_t RunEnd(int64_t row, int64_t end, int64_t fetch_ahead) const {
    const int64_t page_end = (row / size + 1) * size;
    const int64_t ahead_end = ((row + fetch_ahead) / size + 1) * size - fetch_ahead;
    return std::min({end, page_end, ahead_end});
  }

 private:
  [[nodiscard]] int64_t Offset(const core::kernels::RowBlock& pages, int64_t row) const {
    return table[row / size] * stride + row % size * pages.stride;
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_PAGE_TABLE_H_
