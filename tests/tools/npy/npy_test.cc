#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "npy/npy_header.h"
#include "tools/scratch_folder.h"

namespace fa::npy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Returns the bytes of a .npy file with this major version, dictionary and data.
std::string FileBytes(int major, const std::string& dictionary, const std::string& data) {
  std::string bytes = std::string("\x93NUMPY") + static_cast<char>(major) + '\0';
  const size_t length_bytes = major == 1 ? 2 : 4;
  for (size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(dictionary.size() >> 8 * i & 0xff);
  return bytes + dictionary + data;
}

template <typename T>
std::string BytesOfNumbers(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string MessageOf(const std::string& path) {
  try {
    static_cast<void>(Load(path));
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no FormatError";
}

class NpyFile : public ::testing::Test {
 protected:
  std::string RefusalOf(const std::string& bytes) { return MessageOf(scratch_.Write("a.npy", bytes)); }
  std::string RefusalOfDictionary(const std::string& dictionary) {
    return RefusalOf(FileBytes(1, dictionary, std::string(64, '\0')));
  }
  test::ScratchFolder scratch_;
};

TEST_F(NpyFile, SavesAndLoadsEveryTypeAndRank) {
  for (int type = 0; type <= static_cast<int>(ElementType::kF64); ++type) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {5}, {2, 3}, {1, 4, 3}, {2, 0, 3}, {1, 2, 1, 3, 1, 2, 1, 2}}) {
      Array array(static_cast<ElementType>(type), shape);
      for (size_t i = 0; i < array.size_bytes(); ++i) array.bytes()[i] = static_cast<std::byte>(i * 7 + 1);
      Save(scratch_.Path("a.npy"), array);
      const Array loaded = Load(scratch_.Path("a.npy"));
      EXPECT_EQ(loaded.type(), array.type());
      EXPECT_EQ(loaded.shape(), shape);
      ASSERT_EQ(loaded.size_bytes(), array.size_bytes());
      EXPECT_EQ(std::memcmp(loaded.bytes(), array.bytes(), array.size_bytes()), 0) << Name(array.type());
    }
  }
}

TEST_F(NpyFile, HeaderIsWhatNumPyWrites) {
  const std::vector<int64_t> shape = {3};
  const std::string header = FormatHeader(ElementType::kF32, shape);
  EXPECT_EQ(header.size() % 64, 0U);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_THAT(header.substr(10), StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"));
  EXPECT_EQ(header.back(), '\n');
}

TEST_F(NpyFile, DataStartsAlignedForEveryLengthOfTheShape) {
  for (int64_t size = 1; size < int64_t{1} << 60; size *= 9) {
    const std::vector<int64_t> shape(4, size);
    EXPECT_EQ(FormatHeader(ElementType::kI8, shape).size() % 64, 0U);
  }
}

TEST_F(NpyFile, ReadsVersions1To3) {
  const std::string dictionary = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }\n";
  for (int major = 1; major <= 3; ++major) {
    const Array array = Load(scratch_.Write("a.npy", FileBytes(major, dictionary, BytesOfNumbers<int32_t>({4, 5, 6}))));
    EXPECT_THAT(array.as<int32_t>(), ElementsAre(4, 5, 6)) << "version " << major;
  }
  EXPECT_THAT(RefusalOf(FileBytes(4, dictionary, "")), HasSubstr("version 4.0"));
}

TEST_F(NpyFile, ReadsDictionariesAsPythonWouldWriteThem) {
  for (const char* dictionary : {"{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<i4\"}",
                                 "{'descr': '<i4', 'shape': (2L, 1L), 'fortran_order': False, } \n"}) {
    const Array array = Load(scratch_.Write("a.npy", FileBytes(1, dictionary, BytesOfNumbers<int32_t>({8, 9}))));
    EXPECT_THAT(array.shape(), ElementsAre(2, 1));
    EXPECT_THAT(array.as<int32_t>(), ElementsAre(8, 9));
  }
}

// An array without elements may have arbitrarily large strides.
TEST_F(NpyFile, FortranOrderOfNothingIsNothing) {
  const std::vector<int64_t> shape = {3, int64_t{1} << 40, int64_t{1} << 40, 0};
  const std::string dictionary = "{'descr': '<i4', 'fortran_order': True, 'shape': " + ShapeText(shape) + ", }";
  const Array array = Load(scratch_.Write("a.npy", FileBytes(1, dictionary, "")));
  EXPECT_EQ(array.shape(), shape);
  EXPECT_EQ(array.size(), 0);
}

TEST_F(NpyFile, FortranOrderBecomesRowMajor) {
  // a[i][j][k] = 100 i + 10 j + k. Elements with consecutive i lie side by side.
  std::vector<int32_t> column_major;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) column_major.push_back(100 * i + 10 * j + k);
    }
  }
  const Array array =
      Load(scratch_.Write("a.npy", FileBytes(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }",
                                             BytesOfNumbers(column_major))));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(array.as<int32_t>()[static_cast<size_t>((i * 3 + j) * 4 + k)], 100 * i + 10 * j + k);
      }
    }
  }
}

TEST_F(NpyFile, RefusesWhatItCannotUse) {
  EXPECT_THAT(RefusalOfDictionary("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }"),
              AllOf(StartsWith(scratch_.Path("a.npy") + ": "), HasSubstr("big endian")));
  EXPECT_THAT(RefusalOfDictionary("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"), HasSubstr("object"));
  EXPECT_THAT(RefusalOfDictionary("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
              HasSubstr("records"));
  EXPECT_THAT(RefusalOfDictionary("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }"), HasSubstr("'<c8'"));
  EXPECT_THAT(RefusalOfDictionary("{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }"), HasSubstr("'<U3'"));
}

TEST_F(NpyFile, RefusesMalformedHeaders) {
  for (const char* dictionary : {"", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }",
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
                                 "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} trailing",
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "{'descr': '<f4"}) {
    EXPECT_THAT(RefusalOfDictionary(dictionary), HasSubstr("header")) << dictionary;
  }
}

TEST_F(NpyFile, RefusesShapesBeyondMemoryWithoutAllocating) {
  EXPECT_THAT(RefusalOfDictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"),
              HasSubstr("too large"));
  EXPECT_THAT(RefusalOfDictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"),
              HasSubstr("truncated"));
}

TEST_F(NpyFile, RefusesEveryTruncation) {
  const std::string whole =
      FileBytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n", BytesOfNumbers<float>({1, 2, 3, 4}));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(RefusalOf(whole.substr(0, length)), HasSubstr("truncated")) << length;
  }
  EXPECT_THAT(Load(scratch_.Write("a.npy", whole)).as<float>(), ElementsAre(1, 2, 3, 4));
}

TEST_F(NpyFile, LeavesBytesAfterTheArrayAlone) {
  const std::string whole = FileBytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
                                      BytesOfNumbers<float>({1, 2}) + "more");
  EXPECT_THAT(Load(scratch_.Write("a.npy", whole)).as<float>(), ElementsAre(1, 2));
}

TEST_F(NpyFile, RefusesOtherFiles) {
  EXPECT_THAT(RefusalOf("PK\x03\x04 this is a zip file"), HasSubstr("not a .npy file"));
}

TEST_F(NpyFile, MissingFilesAndFoldersAreIoErrors) {
  EXPECT_THROW(static_cast<void>(Load(scratch_.Path("missing.npy"))), IoError);
  EXPECT_THROW(static_cast<void>(Load(scratch_.Path(""))), IoError);
  EXPECT_THROW(Save(scratch_.Path("no/such/folder.npy"), Array(ElementType::kF32, {1})), IoError);
}

}  // namespace
}  // namespace fa::npy
