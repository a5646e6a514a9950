#ifndef FA_OPS_PREFIX_SUMS_H_
#define FA_OPS_PREFIX_SUMS_H_

#include <cstdint>
#include <span>

#include "fa/error_text.h"
#include "fa/status.h"

namespace fa::ops {

/// Checks the lengths of packed sequences. Each sequence has one entry: the number of rows up to its end. Entries do
/// not decrease and are at most `rows`. Equal entries, and a leading 0, are sequences without rows. If there are rows,
/// there must be entries.
/// @param name       the argument
/// @param rows_name  the argument that tells the number of rows: "q.shape[0]"
[[nodiscard]] Status CheckPrefixSums(const char* name, std::span<const int64_t> sums, int64_t rows,
                                     const ErrorText& rows_name);

/// The beginning of an error about an entry of a list: "cu_q[3]=20".
[[nodiscard]] ErrorText EntryOf(const char* name, std::span<const int64_t> list, size_t i);

}  // namespace fa::ops

#endif  // FA_OPS_PREFIX_SUMS_H_
