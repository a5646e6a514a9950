#include "ops/tile/row_probability.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace fa::ops {

float RowShift(float max, float sum) {
  if (IsEmptyRow(max, sum)) return std::numeric_limits<float>::infinity();
  return static_cast<float>(max * std::numbers::log2e + std::log2(static_cast<double>(sum)));
}

void AddLanes(const float* p, int64_t keys, int64_t width, int64_t count, float* sums) {
  constexpr int64_t kPartial = 8;  // several partial sums, so that not every addition waits for the previous one
  for (int64_t key = 0; key < keys; ++key, p += width) {
    std::array<float, kPartial> partial{};
    int64_t lane = 0;
    for (; lane + kPartial <= count; lane += kPartial) {
      for (int64_t i = 0; i < kPartial; ++i) partial[static_cast<size_t>(i)] += p[lane + i];
    }
    for (int64_t i = 0; lane < count; ++lane, ++i) partial[static_cast<size_t>(i)] += p[lane];
    for (size_t half = kPartial / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
    }
    sums[key] += partial[0];
  }
}

}  // namespace fa::ops
