#include "npy/npy_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "tools/scratch_folder.h"

namespace fa::npy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NpyRows : public ::testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  /// Returns an array [3, 5, 4] with the numbers 0, 1, 2, ... in memory order.
  static Array Numbers() {
    Array array(ElementType::kI32, {3, 5, 4});
    std::iota(array.as<int32_t>().begin(), array.as<int32_t>().end(), 0);
    return array;
  }
  test::ScratchFolder scratch_;
};

/// Returns the selected rows, computed element by element.
std::vector<int32_t> Expected(const Array& whole, size_t axis, const std::vector<RowRange>& rows) {
  std::vector<std::vector<int64_t>> chosen;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<int64_t>& of_axis = chosen.emplace_back();
    if (i != axis) {
      of_axis.resize(static_cast<size_t>(whole.shape()[i]));
      std::iota(of_axis.begin(), of_axis.end(), 0);
      continue;
    }
    for (const RowRange& range : rows) {
      for (int64_t row = range.begin; row < range.end; ++row) of_axis.push_back(row);
    }
  }
  std::vector<int32_t> numbers;
  for (const int64_t a : chosen[0]) {
    for (const int64_t b : chosen[1]) {
      for (const int64_t c : chosen[2]) {
        numbers.push_back(static_cast<int32_t>((a * whole.shape()[1] + b) * whole.shape()[2] + c));
      }
    }
  }
  return numbers;
}

TEST_F(NpyRows, OfEveryDimensionAreRead) {
  const Array whole = Numbers();
  Save(Path("a.npy"), whole);
  const RowReader reader(Path("a.npy"));
  EXPECT_EQ(reader.shape(), whole.shape());
  for (size_t axis = 0; axis < 3; ++axis) {
    for (const std::vector<RowRange>& rows :
         {std::vector<RowRange>{{0, 2}}, {{2, 3}, {0, 1}}, {{1, 1}}, {}, {{0, 3}}}) {
      const Array part = reader.Rows(axis, rows);
      const std::span<const int32_t> numbers = part.as<int32_t>();
      EXPECT_EQ(std::vector<int32_t>(numbers.begin(), numbers.end()), Expected(whole, axis, rows)) << axis;
    }
  }
}

TEST_F(NpyRows, OfColumnMajorFilesAreReadRowMajor) {
  // Element (a, b) is 10 a + b. In the file, column follows column.
  const std::string dictionary = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
  const std::string path =
      scratch_.Write("f.npy", std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(dictionary.size()) + '\0' +
                                  dictionary + std::string("\0\x0a\x01\x0b\x02\x0c", 6));
  const RowReader reader(path);
  const auto bytes = [](const Array& array) {
    const std::span<const uint8_t> numbers = array.as<uint8_t>();
    return std::vector<int>(numbers.begin(), numbers.end());
  };
  const RowRange second{1, 2}, last_two{1, 3};
  EXPECT_THAT(bytes(reader.Rows(0, {&second, 1})), ElementsAre(10, 11, 12));
  EXPECT_THAT(bytes(reader.Rows(1, {&last_two, 1})), ElementsAre(1, 2, 11, 12));
  EXPECT_THAT(bytes(reader.All()), ElementsAre(0, 1, 2, 10, 11, 12));
}

TEST_F(NpyRows, OfNothingAreNothing) {
  const std::vector<int64_t> shape = {int64_t{1} << 40, 5, 0};
  Save(Path("a.npy"), Array(ElementType::kI32, shape));
  const RowReader reader(Path("a.npy"));
  EXPECT_EQ(reader.Rows(2, {}).shape(), shape);
  const RowRange first{0, 1};
  EXPECT_EQ(reader.Rows(0, {&first, 1}).shape(), (std::vector<int64_t>{1, 5, 0}));
}

TEST_F(NpyRows, WrittenByManyMakeTheFileOfOne) {
  const Array whole = Numbers();
  Save(Path("one.npy"), whole);
  for (size_t axis = 0; axis < 3; ++axis) {
    std::FILE* const file = std::fopen(Path("many.npy").c_str(), "wb");
    ASSERT_NE(file, nullptr);
    WriteHeaderAndLength(file, whole.type(), whole.shape());
    ASSERT_EQ(std::fclose(file), 0);
    for (const std::vector<RowRange>& rows :
         {std::vector<RowRange>{{2, 3}, {0, 1}}, {{1, 2}}, {{3, whole.shape()[axis]}}}) {
      if (rows[0].begin >= rows[0].end) continue;
      const RowsOfArray where = {.shape = whole.shape(), .axis = axis, .rows = rows};
      std::vector<int64_t> shape = whole.shape();
      shape[axis] = 0;
      for (const RowRange& range : rows) shape[axis] += range.end - range.begin;
      Array part(whole.type(), shape);
      TakeRows(whole.bytes(), where, part);
      WriteRows(Path("many.npy"), part, where);
    }
    EXPECT_EQ(scratch_.Read("many.npy"), scratch_.Read("one.npy")) << axis;
  }
}

TEST_F(NpyRows, PutBackAreWhereTheyWere) {
  const Array whole = Numbers();
  Array copy(whole.type(), whole.shape());
  std::fill(copy.bytes(), copy.bytes() + copy.size_bytes(), std::byte{0xff});
  const RowRange rows[] = {{4, 5}, {1, 2}};
  const RowsOfArray where = {.shape = whole.shape(), .axis = 1, .rows = rows};
  Array part(whole.type(), {3, 2, 4});
  TakeRows(whole.bytes(), where, part);
  PutRows(part, where, copy.bytes());
  for (int64_t a = 0; a < 3; ++a) {
    for (int64_t b = 0; b < 5; ++b) {
      for (int64_t c = 0; c < 4; ++c) {
        const auto at = static_cast<size_t>((a * 5 + b) * 4 + c);
        EXPECT_EQ(copy.as<int32_t>()[at], b == 4 || b == 1 ? static_cast<int32_t>(at) : -1);
      }
    }
  }
}

TEST_F(NpyRows, WantAWholeRegularFile) {
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      const RowReader reader(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(Path("pipe")), HasSubstr(Path("pipe") + ": not a regular file"));
  EXPECT_THAT(refusal(Path("none.npy")), HasSubstr(Path("none.npy") + ": "));
  Save(Path("a.npy"), Numbers());
  const std::string bytes = scratch_.Read("a.npy");
  EXPECT_THAT(refusal(scratch_.Write("short.npy", bytes.substr(0, bytes.size() - 1))), HasSubstr("truncated"));
}

}  // namespace
}  // namespace fa::npy
