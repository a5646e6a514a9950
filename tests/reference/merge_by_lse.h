#ifndef FA_TESTS_REFERENCE_MERGE_BY_LSE_H_
#define FA_TESTS_REFERENCE_MERGE_BY_LSE_H_

#include <vector>

namespace reference {

/// One row of a partial result. If lse is infinite, the part has no keys for the row.
struct LsePart {
  std::vector<double> out;
  double lse = 0;
};

/// Returns the row over the keys of all parts. Without keys, out is 0 and lse is -inf. A NaN among the lse makes out
/// and lse NaN.
[[nodiscard]] LsePart MergeByLse(const std::vector<LsePart>& parts);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MERGE_BY_LSE_H_
