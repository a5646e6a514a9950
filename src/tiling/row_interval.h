#ifndef FA_TILING_ROW_INTERVAL_H_
#define FA_TILING_ROW_INTERVAL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fa/mask.h"

namespace fa::tiling {

/// [begin, end); empty when begin >= end.
struct Interval {
  int64_t begin = 0, end = 0;
  [[nodiscard]] bool empty() const { return begin >= end; }
  [[nodiscard]] int64_t size() const { return std::max<int64_t>(end - begin, 0); }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// What a (rows x keys) rectangle needs: nothing, a select per pair, or no mask at all.
enum class TileClass : uint8_t { kNone, kPartial, kFull };

/// The mask algebra. Row i keeps the keys j with (i + lo <= j <= i + hi or j < prefix) and 0 <= j < sk. These keys are
/// one interval whose ends do not decrease with i, so a rectangle is classified by its corners. Every mode 0..8 is such
/// a rule for a given batch element. A rule with prefix > 0 has no lower bound (lo = -(sq + sk)).
///
/// A rule may also list its rows' intervals, whose ends do not decrease either. Answers that follow from two rows
/// follow from them here too. Counts and searches walk over the rows.
struct RowRule {
  int64_t lo = 0, hi = 0, prefix = 0;  ///< saturated to +-(sq + sk); hi < lo and prefix 0: no key at all
  int64_t sq = 0, sk = 0;
  std::shared_ptr<const std::vector<Interval>> listed = {};  ///< if given: the keys of each row, without lo and hi

  /// The kept keys of row i.
  [[nodiscard]] Interval Keys(int64_t i) const {
    if (listed != nullptr) return (*listed)[static_cast<size_t>(i)];
    const int64_t begin = prefix > 0 ? 0 : std::clamp<int64_t>(i + lo, 0, sk);
    const int64_t end = std::clamp<int64_t>(std::max(i + hi + 1, prefix), 0, sk);
    return {begin, std::max(begin, end)};
  }
  /// Smallest interval that holds the kept keys of all rows in `rows` (empty if they have none).
  [[nodiscard]] Interval KeysOfRows(Interval rows) const;
  /// The keys that every row in `rows` keeps.
  [[nodiscard]] Interval KeysOfEveryRow(Interval rows) const;
  /// The rows that keep at least one key of `keys`, as one interval. If rows are listed, some rows inside the interval
  /// may keep no key at all.
  [[nodiscard]] Interval RowsOfKeys(Interval keys) const;
  /// Exact: kNone iff no pair of the rectangle is kept, kFull iff all are.
  [[nodiscard]] TileClass Classify(Interval rows, Interval keys) const;
  /// The number of kept pairs in `rows`. It has a closed form unless rows are listed.
  [[nodiscard]] int64_t KeptPairs(Interval rows) const;
  /// Whether some row keeps no key.
  [[nodiscard]] bool HasEmptyRow() const;
  friend bool operator==(const RowRule&, const RowRule&) = default;

 private:
  /// `rows` without the rows at both ends that keep no key.
  [[nodiscard]] Interval WithoutEmptyEnds(Interval rows) const;
};

/// The rule that lists every row's keys. Keys outside 0..sk are dropped. A row whose keys are not one interval keeps no
/// keys.
/// @param wrong_row  the first row with keys whose interval begins or ends before that of a row above it with keys; -1:
///                   none
[[nodiscard]] RowRule ListedRowRule(std::span<const int64_t> begins, std::span<const int64_t> ends, int64_t sk,
                                    int64_t* wrong_row);

/// The rule of one batch element, for any mask that does not list rows. `first_non_empty` and `last_non_empty` say
/// whether it is the first or the last element with sq > 0 (modes 7 and 8).
[[nodiscard]] RowRule MakeRowRule(const Mask& mask, int64_t batch, int64_t sq, int64_t sk, bool first_non_empty,
                                  bool last_non_empty);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_INTERVAL_H_
