#ifndef FA_TESTS_CORE_KERNELS_KERNEL_FIXTURE_H_
#define FA_TESTS_CORE_KERNELS_KERNEL_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "core/machine/cpu.h"
#include "support/each_case.h"

namespace fa::core::kernels {

using test::Axis;
using test::ForEachCase;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kEps = std::numeric_limits<float>::epsilon();
inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// The f16 type of the compiler. g++ 12 has __fp16 on aarch64 only, and _Float16 on x86-64 only.
#if defined(__aarch64__)
using Half = __fp16;
#else
using Half = _Float16;
#endif

/// A kernel table, and one of its sets of strip kernels.
struct Level {
  const KernelTable* table;
  int strip;
};

/// Returns every set of strip kernels of every level that this CPU has. A set that two levels share is listed once.
inline std::vector<Level> Levels() {
  std::vector<Level> levels;
  std::vector<const KernelTable*> tables;
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    const KernelTable* table = &Kernels(isa);
    // Two levels may share their strip kernels.
    const auto same = [table](const KernelTable* other) { return other->strips == table->strips; };
    if (std::none_of(tables.begin(), tables.end(), same)) tables.push_back(table);
  }
  tables.push_back(&PortableBlasKernels());
  for (const KernelTable* table : tables) {
    for (int s = 0; s < table->strip_count; ++s) levels.push_back({table, s});
  }
  return levels;
}

/// A matrix with rows `stride` apart, and NaN before, after and between them.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, int64_t stride, uint32_t seed, int64_t offset = 0)
      : rows_(rows), columns_(columns), stride_(stride), offset_(offset + kGuard) {
    values_.assign(static_cast<size_t>(offset_ + rows * stride + kGuard), kNan);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) at(r, c) = normal(random);
    }
  }
  float& at(int64_t r, int64_t c) { return values_[static_cast<size_t>(offset_ + r * stride_ + c)]; }
  [[nodiscard]] float at(int64_t r, int64_t c) const { return values_[static_cast<size_t>(offset_ + r * stride_ + c)]; }
  float* data() { return values_.data() + offset_; }
  [[nodiscard]] const float* values() const { return values_.data() + offset_; }
  [[nodiscard]] int64_t stride() const { return stride_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t columns() const { return columns_; }
  /// Returns the transposed matrix, without gaps.
  [[nodiscard]] Matrix Transposed() const {
    Matrix turned(columns_, rows_, rows_, 0);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) turned.at(c, r) = at(r, c);
    }
    return turned;
  }
  /// Returns whether everything outside the elements is still NaN.
  [[nodiscard]] bool Intact() const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) - offset_;
      const bool inside = at >= 0 && at < rows_ * stride_ && at % stride_ < columns_;
      if (!inside && !std::isnan(values_[i])) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t rows_, columns_, stride_, offset_;
  std::vector<float> values_;
};

inline Matrix RowOf(int64_t width, float value) {
  Matrix row(1, width, width, 0);
  for (int64_t lane = 0; lane < width; ++lane) row.at(0, lane) = value;
  return row;
}

/// Expects that every element of the first `columns` columns is start(row, column) plus `count` terms term(row, column,
/// i), within the error of `roundings` operations. Each rounds once with FMA, and twice without. Also expects that
/// nothing was written outside the matrix.
template <typename Start, typename Term>
void ExpectSums(const Matrix& got, int64_t columns, int64_t count, int64_t roundings, const Start& start,
                const Term& term) {
  for (int64_t r = 0; r < got.rows(); ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      double want = start(r, c), magnitude = std::fabs(want);
      for (int64_t i = 0; i < count; ++i) {
        const double next = term(r, c, i);
        want += next;
        magnitude += std::fabs(next);
      }
      ASSERT_NEAR(got.at(r, c), want, kEps * static_cast<double>(roundings) * magnitude)
          << "row " << r << " column " << c;
    }
  }
  ASSERT_TRUE(got.Intact());
}

/// Returns whether two numbers have the same bits. Any two NaN count as equal, because compilers choose between
/// forms of FMA that keep the payloads of different operands.
inline bool EqualBits(float x, float y) {
  return (std::isnan(x) && std::isnan(y)) || std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
}
/// Returns whether all elements have the same bits, and nothing was written outside `got`.
inline testing::AssertionResult SameBits(const Matrix& got, const Matrix& want) {
  for (int64_t r = 0; r < want.rows(); ++r) {
    for (int64_t c = 0; c < want.columns(); ++c) {
      if (EqualBits(got.at(r, c), want.at(r, c))) continue;
      return testing::AssertionFailure() << "row " << r << " column " << c << ": " << got.at(r, c) << " against "
                                         << want.at(r, c);
    }
  }
  if (!got.Intact()) return testing::AssertionFailure() << "written outside the matrix";
  return testing::AssertionSuccess();
}

/// The state of online-softmax rows, as the kernels keep it.
struct State {
  State(const StripKernels& kernels, int64_t dv)
      : row_max(static_cast<size_t>(kernels.width), kMaskedScore),
        row_sum(static_cast<size_t>(kernels.width), 0.0f),
        o(kernels.rows, dv, dv, 1) {}
  bool operator==(const State& other) const {
    return std::memcmp(row_max.data(), other.row_max.data(), row_max.size() * sizeof(float)) == 0 &&
           std::memcmp(row_sum.data(), other.row_sum.data(), row_sum.size() * sizeof(float)) == 0 &&
           SameBits(o, other.o);
  }
  std::vector<float> row_max, row_sum;
  Matrix o;
};

/// Expects that each lane's row_max is the maximum of `before` and of the lane's scores in `s`, which a kernel has just
/// written.
inline void ExpectRaised(const Matrix& row_max, float before, const Matrix& s, int64_t keys, int64_t width) {
  for (int64_t lane = 0; lane < width; ++lane) {
    float want = before;
    for (int64_t r = 0; r < keys; ++r) want = std::max(want, s.at(r, lane));
    ASSERT_EQ(row_max.at(0, lane), want) << lane;
  }
}

/// A test that runs for every line of the registry.
class KernelTest : public testing::TestWithParam<Level> {
 protected:
  [[nodiscard]] const StripKernels& kernels() const { return GetParam().table->strips[GetParam().strip]; }
  [[nodiscard]] const RowKernels& row_kernels() const { return *GetParam().table->rows; }
  [[nodiscard]] int64_t width() const { return kernels().width; }
};

inline std::string LevelName(const testing::TestParamInfo<Level>& info) {
  return info.param.table->strips[info.param.strip].name;
}

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_KERNEL_FIXTURE_H_
