#ifndef FA_TESTS_REFERENCE_MERGE_H_
#define FA_TESTS_REFERENCE_MERGE_H_

#include <vector>

namespace reference {

/// One row of a result that was computed from only some of the keys.
struct PartialRow {
  std::vector<double> out;
  double max = 0, sum = 0;

  /// Returns whether the row has no keys. Then its sum is 0, or its max is -FLT_MAX and its sum FLT_MAX.
  [[nodiscard]] bool absent() const;
};

/// Returns the row for the keys of `prev` and `cur` together. If only one of these rows has keys, returns that row. If
/// neither has keys, out is 0, max is -FLT_MAX and sum is FLT_MAX.
[[nodiscard]] PartialRow Merge(const PartialRow& prev, const PartialRow& cur);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MERGE_H_
