#ifndef FA_OPS_CHECK_PAGES_H_
#define FA_OPS_CHECK_PAGES_H_

#include <cstdint>

#include "fa/status.h"
#include "layout/stored_rows.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// Checks in Run that the entries of row b of block_table in the interval `used` are numbers of existing pages.
/// @return kInvalidArgument: "block_table[0][3]=12, want 0..11 (k.shape[0])"
[[nodiscard]] Status CheckPages(const layout::BlockTable& table, int64_t b, tiling::Interval used,
                                const char* name = "block_table", const char* pages = "k");

}  // namespace fa::ops

#endif  // FA_OPS_CHECK_PAGES_H_
