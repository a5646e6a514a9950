#ifndef FA_OPS_UNUSED_ROWS_H_
#define FA_OPS_UNUSED_ROWS_H_

#include <string>

#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// Returns a line for a plan's description about the packed query rows past the last sequence. Many such rows may mean
/// that the caller gave lengths instead of their sums. The line is empty if there are no such rows.
inline std::string UnusedRowsLine(const BoundAttention& bound) {
  const int64_t rows = bound.tail_row_end - bound.tail_row_begin;
  return rows > 0 ? std::to_string(rows) + " rows past the last sequence\n" : std::string();
}

}  // namespace fa::ops

#endif  // FA_OPS_UNUSED_ROWS_H_
