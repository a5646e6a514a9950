#ifndef FA_TILING_ROW_INTERVAL_H_
#define FA_TILING_ROW_INTERVAL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fa/mask.h"

namespace fa::tiling {

/// The numbers [begin, end). The interval is empty if begin >= end.
struct Interval {
  int64_t begin = 0, end = 0;
  [[nodiscard]] bool empty() const { return begin >= end; }
  [[nodiscard]] int64_t size() const { return std::max<int64_t>(end - begin, 0); }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// How much of a rectangle of rows and keys a mask keeps. kNone: no pair is kept, so there is no work. kPartial: each
/// pair must be compared with the mask. kFull: all pairs are kept, and no mask is needed.
enum class TileClass : uint8_t { kNone, kPartial, kFull };

/// The keys that each row of a sequence keeps. Row i keeps the keys j with (i + lo <= j <= i + hi or j < prefix) and 0
/// <= j < sk. These keys are one interval whose ends do not decrease with i, so a rectangle is classified by its
/// corners. For a given batch element, lo, hi and prefix describe every sparse mode 0..8. If prefix > 0, there is no
/// lower bound (lo = -(sq + sk)).
///
/// Instead, the intervals of all rows may be listed, and their ends do not decrease either. Even then KeysOfRows,
/// KeysOfEveryRow and Classify look at the first and the last row only, apart from empty rows at the ends. RowsOfKeys
/// searches the list, and KeptPairs and HasEmptyRow walk over it.
struct RowRule {
  int64_t lo = 0, hi = 0, prefix = 0;  ///< saturated to +-(sq + sk); hi < lo and prefix 0: no key at all
  int64_t sq = 0, sk = 0;
  std::shared_ptr<const std::vector<Interval>> listed = {};  ///< if given: the keys of each row, without lo and hi

  /// Returns the kept keys of row i.
  [[nodiscard]] Interval Keys(int64_t i) const {
    if (listed != nullptr) return (*listed)[static_cast<size_t>(i)];
    const int64_t begin = prefix > 0 ? 0 : std::clamp<int64_t>(i + lo, 0, sk);
    const int64_t end = std::clamp<int64_t>(std::max(i + hi + 1, prefix), 0, sk);
    return {begin, std::max(begin, end)};
  }
  /// Returns the smallest interval that holds the kept keys of all rows in `rows`. It is empty if the rows keep no
  /// keys.
  [[nodiscard]] Interval KeysOfRows(Interval rows) const;
  /// Returns the keys that every row in `rows` keeps.
  [[nodiscard]] Interval KeysOfEveryRow(Interval rows) const;
  /// Returns the rows that keep at least one key of `keys`, as one interval. If rows are listed, some rows inside the
  /// interval may keep no key at all.
  [[nodiscard]] Interval RowsOfKeys(Interval keys) const;
  /// Returns the exact class: kNone only if no pair of the rectangle is kept, kFull only if all pairs are kept.
  [[nodiscard]] TileClass Classify(Interval rows, Interval keys) const;
  /// Returns the number of kept pairs in `rows`. The number has a closed form unless rows are listed.
  [[nodiscard]] int64_t KeptPairs(Interval rows) const;
  /// Returns whether some row keeps no key.
  [[nodiscard]] bool HasEmptyRow() const;
  friend bool operator==(const RowRule&, const RowRule&) = default;

 private:
  /// Returns `rows` without the rows at both ends that keep no key.
  [[nodiscard]] Interval WithoutEmptyEnds(Interval rows) const;
};

/// Makes the RowRule that lists every row's keys. Keys outside 0..sk are dropped. A row whose end is not above its
/// begin keeps no keys.
/// @param wrong_row  gets the first wrong row, or -1 if there is none. A row with keys is wrong if its interval begins
///                   or ends before the interval of a row above it. It is also wrong if it begins before the end of
///                   that interval and an empty row lies between the two rows
[[nodiscard]] RowRule ListedRowRule(std::span<const int64_t> begins, std::span<const int64_t> ends, int64_t sk,
                                    int64_t* wrong_row);

/// Returns the RowRule of one batch element, for any mask that does not list rows. `first_non_empty` and
/// `last_non_empty` say whether this element is the first or the last element with sq > 0 (modes 7 and 8).
[[nodiscard]] RowRule MakeRowRule(const Mask& mask, int64_t batch, int64_t sq, int64_t sk, bool first_non_empty,
                                  bool last_non_empty);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_INTERVAL_H_
