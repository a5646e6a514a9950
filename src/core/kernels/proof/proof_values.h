#ifndef FA_CORE_KERNELS_PROOF_VALUES_H_
#define FA_CORE_KERNELS_PROOF_VALUES_H_

/// The numbers of the problems that levels are tried on.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels::proof {

inline constexpr double kRounding = 0x1p-24;  ///< half an ulp of 1 in f32
inline constexpr float kNoNumber = __builtin_nanf("");
inline constexpr int64_t kMostRows = 64;  ///< that kernels compute at once

/// Number `i` of sequence `of`: a multiple of 1/8 in [-1, 1]. It is a bf16 and an f16 too, and sums of a thousand
/// products of two are exact in f32, in whatever order they are added.
[[nodiscard]] inline float Value(uint32_t of, int64_t i) {
  const uint32_t mixed = (static_cast<uint32_t>(i) * 2654435761u ^ of * 2246822519u) * 3266489917u;
  return (static_cast<float>(mixed >> 16 & 15) - 8) / 8;
}

/// The 16 bits of a value or NaN.
[[nodiscard]] inline uint16_t HalfOf(float value, DType dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255, mantissa = bits & 0x7fffff;
  if (dtype == DType::kBF16) return static_cast<uint16_t>(bits >> 16);
  if (exponent == 255) return static_cast<uint16_t>(sign | 0x7c00 | mantissa >> 13);
  return static_cast<uint16_t>(value == 0 ? sign : sign | (exponent - 127 + 15) << 10 | mantissa >> 13);
}

/// Writes element i of a row.
inline void Put(void* row, DType dtype, int64_t i, float value) {
  const uint16_t half = dtype == DType::kF32 ? uint16_t{0} : HalfOf(value, dtype);
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  std::memcpy(static_cast<char*>(row) + i * size, dtype == DType::kF32 ? static_cast<const void*>(&value) : &half,
              SizeOf(dtype));
}
/// Element i of a row: the number or, of 16 bits, the integer that they are, which two levels agree on or not.
[[nodiscard]] inline float Element(const void* row, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(row)[i];
  return static_cast<const uint16_t*>(row)[i];
}

/// A tile or a list of floats that kernels write.
using Floats = std::vector<float>;
[[nodiscard]] inline Floats FloatsOf(int64_t count, float value = 0) {
  return Floats(static_cast<size_t>(count), value);
}
[[nodiscard]] inline Floats ValuesOf(uint32_t of, int64_t count) {
  Floats values = FloatsOf(count);
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = Value(of, i);
  return values;
}

/// Rows of values in every float type. What lies before, between and after them is NaN.
class Values {
 public:
  /// @param before  rows of NaN that lie before row 0
  /// @param sign    1 or -1, which every value is multiplied by
  Values(uint32_t of, int64_t rows, int64_t columns, int64_t before = 0, float sign = 1)
      : before_(before),
        stride_(columns + kBetween),
        f32_(FloatsOf((before + rows + 1) * stride_, kNoNumber)),
        bf16_(f32_.size(), HalfOf(kNoNumber, DType::kBF16)),
        f16_(f32_.size(), HalfOf(kNoNumber, DType::kF16)) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) Set(r, c, sign * Value(of, r * columns + c));
    }
  }
  void Set(int64_t row, int64_t column, float value) {
    const size_t at = At(row, column);
    f32_[at] = value;
    bf16_[at] = HalfOf(value, DType::kBF16);
    f16_[at] = HalfOf(value, DType::kF16);
  }
  /// @param row  from -before on
  [[nodiscard]] const void* Row(int64_t row, DType dtype, int64_t column = 0) const {
    const size_t at = At(row, column);
    return dtype == DType::kBF16  ? static_cast<const void*>(&bf16_[at])
           : dtype == DType::kF16 ? static_cast<const void*>(&f16_[at])
                                  : &f32_[at];
  }
  [[nodiscard]] RowBlock Block(int64_t row, DType dtype, int64_t column = 0) const {
    return {.data = Row(row, dtype, column), .dtype = dtype, .stride = stride_};
  }

 private:
  static constexpr int64_t kBetween = 3;
  [[nodiscard]] size_t At(int64_t row, int64_t column) const {
    return static_cast<size_t>((before_ + row) * stride_ + column);
  }

  int64_t before_, stride_;
  Floats f32_;
  std::vector<uint16_t> bf16_, f16_;
};

/// Whether two levels say something else of a number whose magnitude is 1 or less, or relative to it. Infinities and
/// NaN have to agree.
[[nodiscard]] inline bool Differ(float a, float b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return false;
  return !(std::fabs(double{a} - double{b}) <= tolerance * std::fmax(1, std::fabs(double{b})));
}
[[nodiscard]] inline bool Differ(std::span<const float> a, std::span<const float> b, double tolerance) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Differ(a[i], b[i], tolerance)) return true;
  }
  return false;
}

/// Some kernels of a level for queries, and the table whose row kernels lay their operands.
struct QueryKernels {
  const KernelTable& table;
  const StripKernels& kernels;

  [[nodiscard]] bool pairs() const { return kernels.operands == Operands::kBF16Pairs; }
  /// Whether the output state is [row][dv].
  [[nodiscard]] bool by_row() const { return kernels.any_dtype || kernels.state_by_row; }
  /// The type of rows of K and V where any type would do for `wanted`.
  [[nodiscard]] DType TypeFor(DType wanted) const {
    if (pairs()) return DType::kBF16;
    return kernels.any_dtype ? wanted : DType::kF32;
  }
};

/// The kernels for queries that a level adds to those of the level below: strips, the same with their state by rows,
/// few rows, heads in place.
[[nodiscard]] std::vector<QueryKernels> OwnKernels(const KernelTable& level, const KernelTable& below);
/// The most rows that one of them computes.
[[nodiscard]] int64_t MostRows(std::span<const QueryKernels> own);

/// What is wrong with row kernels and outer products; products of strips and few rows; softmax, alone and in one loop
/// with products; passes over scores.
[[nodiscard]] std::string RowDisproof(const KernelTable& level, const KernelTable& below);
[[nodiscard]] std::string ProductDisproof(const KernelTable& level, const KernelTable& below);
[[nodiscard]] std::string AttentionDisproof(const KernelTable& level, const KernelTable& below);
[[nodiscard]] std::string PassDisproof(const KernelTable& level, const KernelTable& below);

}  // namespace fa::core::kernels::proof

#endif  // FA_CORE_KERNELS_PROOF_VALUES_H_
