#include "ops/tile/key_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "layout/stored_rows.h"

namespace fa::ops {
namespace {

constexpr int64_t kPages = 5, kPageRows = 4, kRowColumns = 3, kPageStride = kPageRows * kRowColumns;
constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();

/// Entries 0 and 3 are valid. A check refuses the other entries, but another thread may write them after the check.
const std::vector<int32_t> kTable = {0, 3, -1, kPages, kLeast, kMost};
const int64_t kRowKeys = std::ssize(kTable) * kPageRows;

/// Returns the rows of the second of two sequences, whose keys lie in `pages`.
layout::HeadRows SecondElement(const std::vector<float>& pages, const std::vector<int32_t>& table) {
  const layout::StoredRows rows{
      .view = {pages.data(), {.dtype = DType::kF32, .batch = kPageStride, .row = kRowColumns}},
      .table = {.entries = table.data(), .row = std::ssize(kTable), .page_rows = kPageRows, .pages = kPages}};
  return rows.Head(1, 0, 0);
}

std::vector<int32_t> TwoRowsOfTheTable() {
  std::vector<int32_t> table(kTable.size(), 1);
  table.insert(table.end(), kTable.begin(), kTable.end());
  return table;
}

TEST(KeyRows, NoEntryLeadsOutOfThePages) {
  const std::vector<float> pages(static_cast<size_t>(kPages * kPageStride));
  const std::vector<int32_t> table = TwoRowsOfTheTable();
  const layout::HeadRows head = SecondElement(pages, table);
  for (const int64_t fetch_ahead : {0, 7}) {
    KeyRows rows;
    rows.k = {pages.data(), DType::kF32, kRowColumns, fetch_ahead};
    rows.k_runs = head;
    rows.end = kRowKeys;
    for (int64_t key = 0; key < kRowKeys; ++key) {
      const core::kernels::RowBlock row = rows.K(key);
      EXPECT_EQ(row.data, head.At(key)) << key;
      const int64_t at = static_cast<const float*>(row.data) - pages.data();
      EXPECT_GE(at, 0) << key;
      EXPECT_LE(at + kRowColumns, std::ssize(pages)) << key;
      EXPECT_EQ(at % kPageStride, key % kPageRows * kRowColumns) << key;
      const int32_t page = kTable[static_cast<size_t>(key / kPageRows)];
      EXPECT_TRUE(page != 3 || at / kPageStride == 3) << key;
      // The row that is fetched ahead must lie in the pages too.
      const int64_t ahead = at + row.fetch_ahead * kRowColumns;
      EXPECT_GE(ahead, 0) << key;
      EXPECT_LE(ahead + kRowColumns, std::ssize(pages)) << key;
    }
  }
}

TEST(StoredRows, OfPagesHaveNoOffset) {
  const std::vector<float> pages(static_cast<size_t>(kPages * kPageStride));
  const std::vector<int32_t> table = TwoRowsOfTheTable();
  layout::StoredRows rows{
      .view = {pages.data(), {.dtype = DType::kF32, .batch = kPageStride, .row = kRowColumns}},
      .table = {.entries = table.data(), .row = std::ssize(kTable), .page_rows = kPageRows, .pages = kPages}};
  EXPECT_EQ(rows.Head(0, 0, 2).At(5), rows.Head(0, 0, 0).At(5));
  rows.table = {};
  EXPECT_EQ(rows.Head(1, 0, 2).At(5), reinterpret_cast<const std::byte*>(pages.data() + kPageStride + 7 * kRowColumns));
}

TEST(StoredRows, OfAListAreThoseOfTheElementsTensor) {
  const std::vector<float> first(12), second(20);
  const std::vector<TensorView> list = {{first.data(), DType::kF32, {1, 2, 2, 3}, {}},
                                        {second.data(), DType::kF32, {1, 2, 2, 5}, {}}};
  const std::vector<layout::Rows> where = {{.dtype = DType::kF32, .head = 6, .row = 3},
                                           {.dtype = DType::kF32, .head = 10, .row = 5}};
  const layout::StoredRows rows{.list = list, .list_rows = where};
  EXPECT_EQ(rows.Head(0, 1, 0).At(1), reinterpret_cast<const std::byte*>(first.data() + 9));
  EXPECT_EQ(rows.Head(1, 1, 0).At(1), reinterpret_cast<const std::byte*>(second.data() + 15));
}

}  // namespace
}  // namespace fa::ops
