#ifndef FA_BENCHMARKS_KERNELS_OPERANDS_H_
#define FA_BENCHMARKS_KERNELS_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

inline constexpr int64_t kKeys = 256;
inline constexpr int64_t kHeadSizes[] = {64, 128, 256};
inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// Rows of random numbers that the type holds exactly, without gaps.
class RandomRows {
 public:
  RandomRows(DType dtype, int64_t rows, int64_t columns, uint32_t seed);

  /// Returns the exact value of an element.
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * columns_ + column)];
  }
  [[nodiscard]] RowBlock block() const { return {memory_.data(), dtype_, columns_}; }
  [[nodiscard]] RowBlock in_place() const { return {.dtype = dtype_, .rows = addresses_.data()}; }
  [[nodiscard]] LaneRows lanes() const { return {addresses_.data(), dtype_, static_cast<int64_t>(addresses_.size())}; }
  [[nodiscard]] double bytes() const { return static_cast<double>(values_.size() * SizeOf(dtype_)); }

 private:
  DType dtype_;
  int64_t columns_;
  std::vector<double> values_;
  std::vector<std::byte> memory_;
  std::vector<const void*> addresses_;
};

/// Returns random numbers in [low, high), rounded to bf16 if as_bf16.
[[nodiscard]] std::vector<float> RandomFloats(int64_t count, uint32_t seed, float low, float high,
                                              bool as_bf16 = false);

/// Returns the value of the bf16 number with these bits.
[[nodiscard]] double FromBf16(uint16_t bits);

/// A sum in double, and the sum of its terms' magnitudes.
class WantedSum {
 public:
  void Add(double term);
  /// Throws std::runtime_error with `what` in its text if `got` is wrong: if it differs from the sum by more than f32
  /// roundings explain.
  void Check(const std::string& what, float got) const;

 private:
  double sum_ = 0, magnitude_ = 0;
  int64_t terms_ = 0;
};

/// Throws std::runtime_error with `what` in its text unless |got - want| <= relative * |want|.
void CheckNear(const std::string& what, double got, double want, double relative);

}  // namespace fa::core::kernels

#endif  // FA_BENCHMARKS_KERNELS_OPERANDS_H_
