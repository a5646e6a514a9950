#include "ops/cache/plain_rows.h"

#include <algorithm>
#include <cstring>

namespace fa::ops {
namespace {

// The cache lines of a place are prefetched this many rows before its row is copied. Otherwise the CPU, which writes in
// order, would wait for each line that is in no cache.
constexpr int64_t kAhead = 16;

const void* PlaceOf(const PlainRows& rows, int64_t slot, int64_t byte) {
  const uintptr_t place =
      reinterpret_cast<uintptr_t>(rows.to) + static_cast<uintptr_t>(slot) * static_cast<uintptr_t>(rows.to_row);
  return reinterpret_cast<const void*>(place + static_cast<uintptr_t>(byte));
}

/// Prefetches the first cache lines of a place. The place need not exist.
template <int64_t kBytes>
void FetchPlace(const PlainRows& rows, int64_t slot) {
  constexpr int64_t kMostFetched = 8 * kLineOfMemory;
  const int64_t fetched = std::min(kBytes > 0 ? kBytes : rows.bytes, kMostFetched);
  for (int64_t at = 0; at < fetched; at += kLineOfMemory) {
    __builtin_prefetch(PlaceOf(rows, slot, at), 1);
  }
}

/// Copies one row of at least kLineOfMemory bytes. The row's last line overlaps the preceding line if the row has no
/// whole number of lines.
template <int64_t kBytes>
void CopyPlainRow(const PlainRows& rows, int64_t row, int64_t slot) {
  const std::byte* from = rows.from + row * rows.from_row;
  std::byte* to = rows.to + slot * rows.to_row;
  const int64_t bytes = kBytes > 0 ? kBytes : rows.bytes;
  int64_t at = 0;
  for (; at + kLineOfMemory <= bytes; at += kLineOfMemory) std::memcpy(to + at, from + at, kLineOfMemory);
  if (at < bytes) std::memcpy(to + bytes - kLineOfMemory, from + bytes - kLineOfMemory, kLineOfMemory);
}

/// Returns how many slots at the front of `slots` are consecutive numbers. If there are several shares, the count stops
/// at the next multiple of kNeighbours, because only the places before it surely belong to the same share.
template <typename Slot>
int64_t RunLength(std::span<const Slot> slots, const PlaceShare& share) {
  const auto first = static_cast<int64_t>(slots[0]);
  const int64_t in_share =
      share.count > 1 ? PlaceShare::kNeighbours - first % PlaceShare::kNeighbours : std::ssize(slots);
  const int64_t most = std::min(std::ssize(slots), in_share);
  int64_t rows = 1;
  while (rows < most && slots[static_cast<size_t>(rows)] == first + rows) ++rows;
  return rows;
}

/// Copies consecutive rows to consecutive places; there are no gaps between the rows or between the places.
void CopyPlainRun(const PlainRows& rows, int64_t row, int64_t slot, int64_t count) {
  std::memcpy(rows.to + slot * rows.to_row, rows.from + row * rows.from_row, static_cast<size_t>(count * rows.bytes));
}

/// Copies the rows of a share of the places, one after the other.
/// @tparam kBytes  bytes per row of all tensors, or 0 if only the tensors tell
template <int64_t kBytes, typename Slot>
void CopyPlainRows(std::span<const PlainRows> tensors, std::span<const Slot> slots, const PlaceShare& share) {
  const PlainRows key = tensors.front(), value = tensors.back();
  const bool both = tensors.size() > 1, joins = key.IsDense() && value.IsDense();
  const int64_t count = std::ssize(slots), last = count - 1;
  for (int64_t t = 0; t < count; ++t) {
    const auto ahead = static_cast<int64_t>(slots[static_cast<size_t>(std::min(t + kAhead, last))]);
    const int64_t slot = slots[static_cast<size_t>(t)];
    FetchPlace<kBytes>(key, ahead);
    if (both) FetchPlace<kBytes>(value, ahead);
    if (!share.Has(slot)) continue;
    if (joins && slots[static_cast<size_t>(std::min(t + 1, last))] == slot + 1) {
      const int64_t rows = RunLength(slots.subspan(static_cast<size_t>(t)), share);
      CopyPlainRun(key, t, slot, rows);
      if (both) CopyPlainRun(value, t, slot, rows);
      t += rows - 1;
      continue;
    }
    CopyPlainRow<kBytes>(key, t, slot);
    if (both) CopyPlainRow<kBytes>(value, t, slot);
  }
}

/// Prefetches the lines that a place shares with its neighbours. The place need not exist.
void FetchEnds(const PlainRows& rows, int64_t slot) {
  __builtin_prefetch(PlaceOf(rows, slot, 0), 1);
  __builtin_prefetch(PlaceOf(rows, slot, rows.bytes - 1), 1);
}

template <typename Slot>
void ScatterRowsOf(std::span<const PlainRows> tensors, std::span<const Slot> slots, const PlaceShare& share) {
  switch (tensors.front().bytes == tensors.back().bytes ? tensors.front().bytes : 0) {
    case 64: return CopyPlainRows<64>(tensors, slots, share);
    case 128: return CopyPlainRows<128>(tensors, slots, share);
    case 256: return CopyPlainRows<256>(tensors, slots, share);
    default: return CopyPlainRows<0>(tensors, slots, share);
  }
}

/// Streams the rows of one tensor, so that the loop keeps what it needs in registers.
template <bool kWholeLines, typename Slot>
void StreamTensor(const PlainRows rows, std::span<const Slot> slots, const PlaceShare share) {
  const int64_t count = std::ssize(slots), last = count - 1;
  for (int64_t t = 0; t < count; ++t) {
    const auto slot = static_cast<int64_t>(slots[static_cast<size_t>(t)]);
    if (!kWholeLines) FetchEnds(rows, static_cast<int64_t>(slots[static_cast<size_t>(std::min(t + kAhead, last))]));
    if (!share.Has(slot)) continue;
    std::byte* to = rows.to + slot * rows.to_row;
    const std::byte* from = rows.from + t * rows.from_row;
    if (kWholeLines) {
      StreamLines(to, from, rows.bytes);
    } else {
      StreamRow(to, from, rows.bytes);
    }
  }
}

// Rows of at most this many bytes are streamed only if they have whole lines alone. Most of the other rows have at most
// one whole line, and the lines at their ends must be read anyway. On a Zen 4, usual stores take 0.75 times as long for
// 64 bytes, and 0.9 times as long for 128 bytes.
constexpr int64_t kUsualBytes = 2 * kLineOfMemory;

template <typename Slot>
void StreamRowsOf(std::span<const PlainRows> tensors, std::span<const Slot> slots, const PlaceShare& share) {
  for (const PlainRows& rows : tensors) {
    if (rows.HasWholeLines()) {
      StreamTensor<true>(rows, slots, share);
    } else if (rows.bytes <= kUsualBytes) {
      ScatterRowsOf(std::span(&rows, 1), slots, share);
    } else {
      StreamTensor<false>(rows, slots, share);
    }
  }
  EndStream();
}

}  // namespace

void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const int32_t> slots, const PlaceShare& share) {
  ScatterRowsOf(tensors, slots, share);
}
void ScatterPlainRows(std::span<const PlainRows> tensors, std::span<const int64_t> slots, const PlaceShare& share) {
  ScatterRowsOf(tensors, slots, share);
}

void StreamPlainRows(std::span<const PlainRows> tensors, std::span<const int32_t> slots, const PlaceShare& share) {
  StreamRowsOf(tensors, slots, share);
}
void StreamPlainRows(std::span<const PlainRows> tensors, std::span<const int64_t> slots, const PlaceShare& share) {
  StreamRowsOf(tensors, slots, share);
}

}  // namespace fa::ops
