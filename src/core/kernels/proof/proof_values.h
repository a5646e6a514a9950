#ifndef FA_CORE_KERNELS_PROOF_VALUES_H_
#define FA_CORE_KERNELS_PROOF_VALUES_H_

/// The numbers of the problems that levels are tried on.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels::proof {

inline constexpr double kRounding = 0x1p-24;  ///< half an ulp of 1 in f32

/// Number `i` of sequence `of`: a multiple of 1/8 in [-1, 1]. It is a bf16 and an f16 too, and sums of a thousand
/// products of two are exact in f32, in whatever order they are added.
[[nodiscard]] inline float Value(uint32_t of, int64_t i) {
  const uint32_t mixed = (static_cast<uint32_t>(i) * 2654435761u ^ of * 2246822519u) * 3266489917u;
  return (static_cast<float>(mixed >> 16 & 15) - 8) / 8;
}

/// Rows of values as f32 and as bf16.
class Values {
 public:
  Values(uint32_t of, int64_t rows, int64_t columns) : columns_(columns) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = Value(of, i);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      f32_.push_back(value);
      bf16_.push_back(static_cast<uint16_t>(bits >> 16));
    }
  }
  [[nodiscard]] const void* Row(int64_t row, DType dtype) const {
    const auto at = static_cast<size_t>(row * columns_);
    return dtype == DType::kBF16 ? static_cast<const void*>(&bf16_[at]) : &f32_[at];
  }
  [[nodiscard]] RowBlock Block(int64_t row, DType dtype) const {
    return {.data = Row(row, dtype), .dtype = dtype, .stride = columns_};
  }

 private:
  int64_t columns_;
  std::vector<float> f32_;
  std::vector<uint16_t> bf16_;
};

/// A tile or a list of floats that kernels write.
using Floats = std::vector<float>;
[[nodiscard]] inline Floats FloatsOf(int64_t count, float value = 0) {
  return Floats(static_cast<size_t>(count), value);
}

/// Whether two levels say something else of a number whose magnitude is 1 or less, or relative to it. Infinities and
/// NaN have to agree.
[[nodiscard]] inline bool Differ(float a, float b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return false;
  return !(std::fabs(double{a} - double{b}) <= tolerance * std::fmax(1, std::fabs(double{b})));
}
[[nodiscard]] inline bool Differ(const Floats& a, const Floats& b, double tolerance) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Differ(a[i], b[i], tolerance)) return true;
  }
  return false;
}

/// What is wrong with strips or few rows, with row kernels, with outer products.
[[nodiscard]] std::string StripDisproof(const KernelTable& level, const KernelTable& below);
[[nodiscard]] std::string PassDisproof(const KernelTable& level, const KernelTable& below);
[[nodiscard]] std::string RowDisproof(const KernelTable& level, const KernelTable& below);

}  // namespace fa::core::kernels::proof

#endif  // FA_CORE_KERNELS_PROOF_VALUES_H_
