#ifndef FA_TESTS_REFERENCE_MERGE_H_
#define FA_TESTS_REFERENCE_MERGE_H_

#include <vector>

namespace reference {

/// One row of a result over a part of the keys.
struct PartialRow {
  std::vector<double> out;
  double max = 0, sum = 0;

  /// Whether the row has no keys: its sum is 0, or its max is -FLT_MAX and its sum FLT_MAX.
  [[nodiscard]] bool absent() const;
};

/// The row over the keys of both. A row without keys leaves the other as it is. If both have none, the result is 0,
/// -FLT_MAX, FLT_MAX.
[[nodiscard]] PartialRow Merge(const PartialRow& prev, const PartialRow& cur);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MERGE_H_
