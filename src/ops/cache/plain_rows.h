#ifndef FA_OPS_PLAIN_ROWS_H_
#define FA_OPS_PLAIN_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/cache/stream_rows.h"

namespace fa::ops {

/// Rows of key or value that are copied unchanged to their places in the cache. Each row is one piece of at least
/// kLineOfMemory bytes. Places lie evenly apart.
struct PlainRows {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t from_row = 0, to_row = 0;  ///< bytes between rows
  int64_t bytes = 0;                 ///< bytes per row

  [[nodiscard]] bool IsDense() const { return from_row == bytes && to_row == bytes; }
  /// Returns whether no line of memory has parts of two places.
  [[nodiscard]] bool HasWholeLines() const {
    return (reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(to_row) | static_cast<uintptr_t>(bytes)) %
               kLineOfMemory ==
           0;
  }
};

/// The places that one of several tasks writes.
struct PlaceShare {
  /// Neighbouring places belong to one task, because they share cache lines if the cache stores rows in chunks.
  static constexpr int64_t kNeighbours = 16;

  int64_t number = 0, count = 1;

  /// Returns whether the share has a place; a negative place is in no share. The factor spreads places over the shares,
  /// however pages follow one another; it is 2^32 divided by the golden ratio.
  [[nodiscard]] bool Has(int64_t slot) const {
    if (slot < 0) return false;
    if (count == 1) return true;
    const auto mixed = static_cast<uint32_t>(static_cast<uint64_t>(slot / kNeighbours) * 0x9E3779B9u);
    return static_cast<int64_t>((static_cast<uint64_t>(mixed) * static_cast<uint64_t>(count)) >> 32) == number;
  }
};

/// Copies the rows of a share of the places, one after the other. slots[t] is the place of row t.
/// @param tensors  one or two
void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const int32_t> slots, const PlaceShare& share);
void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const int64_t> slots, const PlaceShare& share);
/// As ScatterPlainRows, but writes past the caches. It is faster if the rows do not stay in the caches.
void StreamPlainRows(std::span<const PlainRows> tensors, std::span<const int32_t> slots, const PlaceShare& share);
void StreamPlainRows(std::span<const PlainRows> tensors, std::span<const int64_t> slots, const PlaceShare& share);

}  // namespace fa::ops

#endif  // FA_OPS_PLAIN_ROWS_H_
