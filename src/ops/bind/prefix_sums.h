#ifndef FA_OPS_PREFIX_SUMS_H_
#define FA_OPS_PREFIX_SUMS_H_

#include <cstdint>
#include <functional>
#include <span>

#include "fa/error_text.h"
#include "fa/status.h"

namespace fa::ops {

/// Checks the lengths of packed sequences, given as prefix sums. Each sequence has one entry: the number of rows up to
/// its end. Entries do not decrease, and none exceeds `rows`. A sequence is empty if its entry equals the one before
/// it, or, for the first sequence, is 0. An empty list is refused if there are rows.
/// @param name       the argument that holds the sums
/// @param rows_name  the size that gives the number of rows: "q.shape[0]"
[[nodiscard]] Status CheckPrefixSums(const char* name, std::span<const int64_t> sums, int64_t rows,
                                     const ErrorText& rows_name);

/// Returns the beginning of an error about an entry of a list: "cu_q[3]=20".
[[nodiscard]] ErrorText EntryOf(const char* name, std::span<const int64_t> list, size_t i);

/// Checks one number per sequence, if there are any. Entry i must be in 0..most(i).
/// @param source  says where the upper end comes from: " (cu_q)"
[[nodiscard]] Status CheckNumbers(const char* name, std::span<const int64_t> numbers, int64_t count,
                                  const std::function<int64_t(size_t)>& most, const ErrorText& source = {});

}  // namespace fa::ops

#endif  // FA_OPS_PREFIX_SUMS_H_
