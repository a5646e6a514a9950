#include "ops/tile/page_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "ops/token/gathered_keys.h"

namespace fa::ops {
namespace {

constexpr int64_t kPages = 5, kPageRows = 4, kColumns = 3, kPageStride = kPageRows * kColumns;
constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();

/// Entries 0 and 3, and one that no check lets pass but that another thread may write after the check.
const std::vector<int32_t> kTable = {0, 3, -1, kPages, kLeast, kMost};

TEST(PageTable, NoEntryLeadsOutOfThePages) {
  const std::vector<float> pages(static_cast<size_t>(kPages * kPageStride));
  const auto keys = static_cast<int64_t>(kTable.size()) * kPageRows;
  const PageTable table{
      .table = kTable.data(), .size = kPageRows, .stride = kPageStride, .rows = keys, .pages = kPages};
  for (const int64_t fetch_ahead : {0, 7}) {
    for (int64_t key = 0; key < keys; ++key) {
      const auto row = table.At({pages.data(), DType::kF32, kColumns, fetch_ahead}, key);
      const int64_t at = static_cast<const float*>(row.data) - pages.data();
      EXPECT_GE(at, 0) << key;
      EXPECT_LE(at + kColumns, std::ssize(pages)) << key;
      EXPECT_EQ(at % kPageStride, key % kPageRows * kColumns) << key;
      const int32_t page = kTable[static_cast<size_t>(key / kPageRows)];
      EXPECT_TRUE(page != 3 || at / kPageStride == 3) << key;
    }
  }
}

TEST(RowFinder, NoEntryLeadsOutOfThePages) {
  const std::vector<float> pages(static_cast<size_t>(kPages * kPageStride));
  const KeySide side{pages.data(), {.dtype = DType::kF32, .batch = kPageStride, .head = 0, .row = kColumns}};
  const KeySources sources{.k = side,
                           .k_rope = {},
                           .v = {},
                           .block_table = kTable.data(),
                           .table_row = std::ssize(kTable),
                           .page_rows = kPageRows,
                           .pages = kPages};
  const RowFinder row(side, sources, {});
  for (int64_t key = 0; key < std::ssize(kTable) * kPageRows; ++key) {
    const int64_t at = reinterpret_cast<const float*>(row(key)) - pages.data();
    EXPECT_GE(at, 0) << key;
    EXPECT_LE(at + kColumns, std::ssize(pages)) << key;
    const int32_t page = kTable[static_cast<size_t>(key / kPageRows)];
    EXPECT_TRUE(page != 3 || at / kPageStride == 3) << key;
  }
}

}  // namespace
}  // namespace fa::ops
