#ifndef FA_TESTS_CORE_KERNELS_BF16_MATRIX_H_
#define FA_TESTS_CORE_KERNELS_BF16_MATRIX_H_

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "core/kernels/kernel_fixture.h"
#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// Returns the bf16 bits of x, rounded towards zero.
inline uint16_t BitsOf(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }
inline float FloatOf(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// bf16 rows that begin `stride` elements apart, with NaN between them.
class Bf16Matrix {
 public:
  Bf16Matrix(int64_t rows, int64_t columns, int64_t stride, uint32_t seed) : rows_(rows), stride_(stride) {
    bits_.assign(static_cast<size_t>(rows * stride + kGuard), BitsOf(kNan));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) Set(r, c, normal(random));
    }
  }
  void Set(int64_t r, int64_t c, float x) { bits_[static_cast<size_t>(r * stride_ + c)] = BitsOf(x); }
  [[nodiscard]] float at(int64_t r, int64_t c) const { return FloatOf(bits_[static_cast<size_t>(r * stride_ + c)]); }
  [[nodiscard]] RowBlock block() const { return {bits_.data(), DType::kBF16, stride_}; }
  [[nodiscard]] const uint16_t* row(int64_t r) const { return bits_.data() + r * stride_; }
  [[nodiscard]] int64_t rows() const { return rows_; }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t rows_, stride_;
  std::vector<uint16_t> bits_;
};

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_BF16_MATRIX_H_
