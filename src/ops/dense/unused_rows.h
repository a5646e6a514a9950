#ifndef FA_OPS_UNUSED_ROWS_H_
#define FA_OPS_UNUSED_ROWS_H_

#include <string>

#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// Returns a line for a plan's description with the number of packed query rows past the last sequence, or "" if there
/// are none. Many such rows suggest that the caller gave lengths instead of prefix sums.
inline std::string UnusedRowsLine(const BoundAttention& bound) {
  const int64_t rows = bound.tail_row_end - bound.tail_row_begin;
  return rows > 0 ? std::to_string(rows) + " rows past the last sequence\n" : std::string();
}

}  // namespace fa::ops

#endif  // FA_OPS_UNUSED_ROWS_H_
