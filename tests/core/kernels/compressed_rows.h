#ifndef FA_TESTS_CORE_KERNELS_COMPRESSED_ROWS_H_
#define FA_TESTS_CORE_KERNELS_COMPRESSED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/kernel_fixture.h"
#include "support/compressed_number.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {

/// Rows of random codes with poison between and around them. The poison of 8-bit floats is NaN.
struct CodeRows {
  CodeRows(DType of, int64_t rows, int64_t columns, int64_t gap_bytes, uint32_t seed, uint8_t poison = 0x7f)
      : format(of),
        row_bytes(of == DType::kI4x8 ? columns / 2 : columns),
        stride_bytes(row_bytes + gap_bytes),
        bytes(static_cast<size_t>(rows * stride_bytes + 64), std::byte{poison}) {
    std::mt19937 random(seed);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        auto code = static_cast<uint8_t>(random());
        // Codes of 8-bit floats stand for zeros and for numbers from 2^-9 to 2, also for subnormal numbers of e4m3.
        if (format == DType::kF8E4M3) code &= 0xbf;
        if (format == DType::kF8E5M2) code = (code & 3) == 0 ? code & 0x80 : (code & 0x9f) + 0x20;
        Set(r, c, code);
      }
    }
  }
  void Set(int64_t row, int64_t column, uint8_t code) {
    test::StoreCode(format, bytes.data() + row * stride_bytes, column, code);
  }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    const std::byte* from = bytes.data() + row * stride_bytes;
    if (format != DType::kI4x8) return test::CompressedNumber(format, static_cast<uint8_t>(from[column]));
    return test::CompressedNumber(format, static_cast<uint8_t>(from[column / 2] >> (column % 2 * 4)));
  }
  [[nodiscard]] const std::byte* row(int64_t row) const { return bytes.data() + row * stride_bytes; }
  [[nodiscard]] int64_t Stride() const { return stride_bytes / static_cast<int64_t>(SizeOf(format)); }
  [[nodiscard]] RowBlock From(int64_t first) const { return {row(first), format, Stride()}; }

  DType format;
  int64_t row_bytes, stride_bytes;
  std::vector<std::byte> bytes;
};

/// The scales and offsets of K or V, with NaN behind them.
struct Numbers {
  enum class Per : uint8_t { kTensor, kRow, kColumn, kRowAndGroup };

  /// @param of_group  the columns of a group
  Numbers(Per of, int64_t all_rows, int64_t columns, double size, bool with_offset, uint32_t seed,
          int64_t of_group = 32)
      : per(of), rows(all_rows), group(of_group) {
    const int64_t count = per == Per::kTensor   ? 1
                          : per == Per::kRow    ? rows
                          : per == Per::kColumn ? columns
                                                : rows * columns / group;
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> near_one(0.5f, 1.5f);
    for (int64_t i = 0; i < count; ++i) {
      scale.push_back(near_one(random) * static_cast<float>(size));
      if (with_offset) offset.push_back(2 * near_one(random));
    }
    scale.insert(scale.end(), 32, kNan);
    if (with_offset) offset.insert(offset.end(), 32, kNan);
  }
  [[nodiscard]] Antiquantization From(int64_t first) const {
    const bool of_rows = per == Per::kRow || per == Per::kRowAndGroup;
    const int64_t at = of_rows ? first : 0;
    return {.scale = scale.data() + at,
            .offset = offset.empty() ? nullptr : offset.data() + at,
            .row_step = of_rows ? 1 : 0,
            .group = per == Per::kColumn        ? 1
                     : per == Per::kRowAndGroup ? group
                                                : 0,
            .group_step = per == Per::kRowAndGroup ? rows : 1};
  }
  [[nodiscard]] size_t Of(int64_t row, int64_t column) const {
    switch (per) {
      case Per::kTensor: return 0;
      case Per::kRow: return static_cast<size_t>(row);
      case Per::kColumn: return static_cast<size_t>(column);
      case Per::kRowAndGroup: break;
    }
    return static_cast<size_t>(column / group * rows + row);
  }
  [[nodiscard]] double Scale(int64_t row, int64_t column) const { return scale[Of(row, column)]; }
  [[nodiscard]] double Offset(int64_t row, int64_t column) const {
    return offset.empty() ? 0 : offset[Of(row, column)];
  }

  Per per;
  int64_t rows, group;
  std::vector<float> scale, offset;
};

/// Numbers of rows and groups, with those of a row next to each other. Reading the number after the last is a fault.
struct NumbersByRows {
  /// @param gap  how many numbers lie between two rows
  NumbersByRows(const Numbers& numbers, int64_t keys, int64_t groups, int64_t gap)
      : row_step(groups + gap),
        scale(Bytes(keys, groups), test::Place::kAtEnd),
        offset(scale.size(), test::Place::kAtEnd) {
    Put(numbers.scale, keys, groups, scale);
    if (!numbers.offset.empty()) Put(numbers.offset, keys, groups, offset);
    by = numbers.From(0);
    by.scale = reinterpret_cast<const float*>(scale.data());
    if (by.offset != nullptr) by.offset = reinterpret_cast<const float*>(offset.data());
    by.row_step = row_step;
    by.group_step = 1;
  }

  int64_t row_step;
  test::GuardedBuffer scale, offset;
  Antiquantization by;

 private:
  [[nodiscard]] size_t Bytes(int64_t keys, int64_t groups) const {
    return static_cast<size_t>((keys - 1) * row_step + groups) * sizeof(float);
  }
  void Put(const std::vector<float>& from, int64_t keys, int64_t groups, const test::GuardedBuffer& to) const {
    for (int64_t i = 0; i < keys * groups; ++i) {
      const float number = from[static_cast<size_t>(i % groups * keys + i / groups)];
      std::memcpy(to.data() + (i / groups * row_step + i % groups) * sizeof number, &number, sizeof number);
    }
  }
};

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_COMPRESSED_ROWS_H_
