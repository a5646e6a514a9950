#ifndef FA_TESTS_REFERENCE_MASK_H_
#define FA_TESTS_REFERENCE_MASK_H_

#include <cstdint>
#include <vector>

namespace reference {

/// The structural part of a mask, given by the number of its sparse mode.
struct MaskRule {
  int mode = 1;       ///< a sparse mode from 0 to 8, or kRows
  bool band = false;  ///< for mode 0 only: whether pre and next apply; in a call they do if a mask tensor is given
  int64_t pre = 0, next = 0;
  std::vector<int64_t> prefix = {};  ///< for modes 5 and 6, one entry per batch element
  static constexpr int kRows = 9;    ///< no sparse mode: row i keeps the keys row_begin <= j < row_end
  /// The bounds of each row, for one sequence after another. Bounds for one sequence only apply to all sequences.
  std::vector<int64_t> row_begin = {}, row_end = {};

  bool operator==(const MaskRule&) const = default;
};

/// The numbers of rows and keys of each sequence.
struct Lengths {
  std::vector<int64_t> sq, sk;

  bool operator==(const Lengths&) const = default;
};

/// Returns whether the rule keeps the pair of query i and key j of batch element b.
[[nodiscard]] bool RuleKeeps(const MaskRule& rule, const Lengths& lengths, int64_t b, int64_t i, int64_t j);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MASK_H_
