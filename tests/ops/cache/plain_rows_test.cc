// Tests ScatterPlainRows and StreamPlainRows, which copy rows to their places, at every address within a cache line.
#include "ops/cache/plain_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fa::ops {
namespace {

constexpr int64_t kPlaces = 40;

/// Rows, and places for the rows. The first place begins `offset` bytes after the start of a cache line. Other bytes of
/// the memory are never written.
struct Memory {
  Memory(int64_t bytes, int64_t gap, int64_t offset) : stride(bytes + gap), first(offset) {
    const auto size = static_cast<size_t>(offset + kPlaces * stride + 2 * kLineOfMemory);
    from.resize(size);
    to.resize(size);
    for (size_t i = 0; i < size; ++i) {
      from[i] = static_cast<std::byte>(i * 7 + i / 256);
      to[i] = static_cast<std::byte>(i * 5 + 3);
    }
    auto* line = to.data();
    while (reinterpret_cast<uintptr_t>(line) % kLineOfMemory != 0) ++line;
    first += line - to.data();
    rows = {.from = from.data() + 1, .to = to.data() + first, .from_row = bytes, .to_row = stride, .bytes = bytes};
  }

  int64_t stride, first;
  std::vector<std::byte> from, to;
  PlainRows rows;
};

/// Returns the memory of places after each row has been copied byte by byte.
template <typename Slot>
std::vector<std::byte> Copied(const Memory& memory, std::span<const Slot> slots, const PlaceShare& share) {
  std::vector<std::byte> to = memory.to;
  for (size_t t = 0; t < slots.size(); ++t) {
    if (!share.Has(slots[t])) continue;
    const std::byte* row = memory.rows.from + static_cast<int64_t>(t) * memory.rows.from_row;
    std::copy_n(row, memory.rows.bytes, to.data() + memory.first + slots[t] * memory.stride);
  }
  return to;
}

template <typename Slot>
void CheckBothWays(int64_t bytes, int64_t gap, int64_t offset, const PlaceShare& share) {
  const std::vector<Slot> slots = {5, 6, 7, -1, 39, 0, 5, 38, 17, 16, 15, 20, 21, 22, 20};  // 5 and 20 twice
  for (const auto& write :
       {static_cast<void (*)(std::span<const PlainRows>, std::span<const Slot>, const PlaceShare&)>(ScatterPlainRows),
        static_cast<void (*)(std::span<const PlainRows>, std::span<const Slot>, const PlaceShare&)>(StreamPlainRows)}) {
    Memory key(bytes, gap, offset), value(bytes + 24, gap, 0);
    const std::vector<std::byte> want_key = Copied<Slot>(key, slots, share),
                                 want_value = Copied<Slot>(value, slots, share);
    const PlainRows tensors[] = {key.rows, value.rows};
    write(std::span<const PlainRows>(tensors), std::span<const Slot>(slots), share);
    EXPECT_EQ(key.to, want_key) << bytes << " bytes, gap " << gap << ", offset " << offset;
    EXPECT_EQ(value.to, want_value) << bytes << " bytes, gap " << gap;
  }
}

TEST(PlainRows, RowsOfEverySizeGoToEveryAddressAndNothingElseIsWritten) {
  for (int64_t bytes = 64; bytes <= 260; bytes += 4) {
    for (int64_t offset = 0; offset < kLineOfMemory; offset += 3) {
      CheckBothWays<int32_t>(bytes, offset % 2 == 0 ? 0 : 20, offset, {});
    }
    CheckBothWays<int64_t>(bytes, 64, 0, {});
  }
}

TEST(PlainRows, AShareWritesItsPlacesOnly) {
  for (int64_t number = 0; number < 3; ++number) {
    CheckBothWays<int64_t>(128, 0, 0, {.number = number, .count = 3});
    CheckBothWays<int32_t>(656, 0, 16, {.number = number, .count = 3});
  }
}

TEST(PlainRows, EachPlaceIsInOneShare) {
  for (int64_t slot = -2; slot < 1000; ++slot) {
    int64_t shares = 0;
    for (int64_t number = 0; number < 5; ++number) shares += PlaceShare{.number = number, .count = 5}.Has(slot) ? 1 : 0;
    EXPECT_EQ(shares, slot < 0 ? 0 : 1) << slot;
  }
}

TEST(PlainRows, LinesAreWholeIfAddressStrideAndSizeAllowIt) {
  EXPECT_TRUE(Memory(128, 64, 0).rows.HasWholeLines());
  EXPECT_FALSE(Memory(128, 64, 16).rows.HasWholeLines());
  EXPECT_FALSE(Memory(128, 16, 0).rows.HasWholeLines());
  EXPECT_FALSE(Memory(80, 48, 0).rows.HasWholeLines());
}

}  // namespace
}  // namespace fa::ops
