#ifndef FA_TESTS_REFERENCE_MERGE_BY_LSE_H_
#define FA_TESTS_REFERENCE_MERGE_BY_LSE_H_

#include <vector>

namespace reference {

/// One row of a partial result. If lse is infinite, the part has no keys for this row.
struct LsePart {
  std::vector<double> out;
  double lse = 0;
};

/// Returns the row for the keys of all parts. If no part has keys, out is 0 and lse is -inf. If any lse is NaN, out and
/// lse are NaN.
[[nodiscard]] LsePart MergeByLse(const std::vector<LsePart>& parts);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MERGE_BY_LSE_H_
