#ifndef FA_OPS_PREFIX_SUMS_H_
#define FA_OPS_PREFIX_SUMS_H_

#include <cstdint>
#include <span>

#include "fa/error_text.h"
#include "fa/status.h"

namespace fa::ops {

/// The lengths of packed sequences: one entry per sequence, the rows up to its end. Entries do not decrease and are at
/// most `rows`; equal ones, and a leading 0, are sequences without rows. There are some unless there are no rows.
/// @param name       the argument
/// @param rows_name  what says how many rows there are: "q.shape[0]"
[[nodiscard]] Status CheckPrefixSums(const char* name, std::span<const int64_t> sums, int64_t rows,
                                     const ErrorText& rows_name);

/// "cu_q[3]=20": what errors about an entry of a list begin with.
[[nodiscard]] ErrorText EntryOf(const char* name, std::span<const int64_t> list, size_t i);

}  // namespace fa::ops

#endif  // FA_OPS_PREFIX_SUMS_H_
