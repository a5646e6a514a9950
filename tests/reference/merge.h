#ifndef FA_TESTS_REFERENCE_MERGE_H_
#define FA_TESTS_REFERENCE_MERGE_H_

#include <vector>

namespace reference {

/// One row of a result over some of the keys.
struct PartialRow {
  std::vector<double> out;
  double max = 0, sum = 0;

  /// Whether the row is over no key: sum 0, or max -FLT_MAX with sum FLT_MAX.
  [[nodiscard]] bool absent() const;
};

/// The row over the keys of both. A row over no key leaves the other as it is; if both are, the result is 0, -FLT_MAX,
/// FLT_MAX.
[[nodiscard]] PartialRow Merge(const PartialRow& prev, const PartialRow& cur);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MERGE_H_
