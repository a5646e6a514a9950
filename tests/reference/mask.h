#ifndef FA_TESTS_REFERENCE_MASK_H_
#define FA_TESTS_REFERENCE_MASK_H_

#include <cstdint>
#include <vector>

namespace reference {

/// The rules of the structural masks, each given by the number of its sparse mode.
struct MaskRule {
  int mode = 1;       ///< 0..8, or kRows
  bool band = false;  ///< only for mode 0: whether pre and next hold, as they do with a mask
  int64_t pre = 0, next = 0;
  std::vector<int64_t> prefix = {};  ///< for modes 5 and 6, one entry per batch element
  static constexpr int kRows = 9;    ///< not a sparse mode: keeps row_begin <= j < row_end
  /// The bounds of the rows of all batch elements, one element after another. If there are bounds of only one element,
  /// they hold for all.
  std::vector<int64_t> row_begin = {}, row_end = {};

  bool operator==(const MaskRule&) const = default;
};

/// Lengths of the batch elements.
struct Lengths {
  std::vector<int64_t> sq, sk;

  bool operator==(const Lengths&) const = default;
};

/// Returns whether the rule keeps the pair of query i and key j of batch element b.
[[nodiscard]] bool RuleKeeps(const MaskRule& rule, const Lengths& lengths, int64_t b, int64_t i, int64_t j);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_MASK_H_
