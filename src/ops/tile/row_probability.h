#ifndef FA_OPS_ROW_PROBABILITY_H_
#define FA_OPS_ROW_PROBABILITY_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// softmax_max and softmax_sum of a row without keys. If the whole sequence has no keys, both are 0 instead.
inline constexpr float kEmptyRowMax = std::numeric_limits<float>::lowest();
inline constexpr float kEmptyRowSum = std::numeric_limits<float>::max();
[[nodiscard]] inline bool IsEmptyRow(float max, float sum) {
  return sum == 0 || (sum == kEmptyRowSum && max == kEmptyRowMax);
}

/// Returns e^(x - max), where x is at most max. If both are infinite, the result is 1: an infinite sink is its row's
/// maximum, and inf - inf would be NaN.
template <typename Real>
[[nodiscard]] Real ExpBelow(Real x, Real max) {
  return x == max ? Real{1} : std::exp(x - max);
}

/// Returns the shift for which P = 2^(score log2(e) - shift): max log2(e) + log2(sum), from natural-log statistics. The
/// shift is infinite for a row without keys, whose P is then 0 everywhere.
[[nodiscard]] float RowShift(float max, float sum);

/// Returns whether a row's maximum is so far from 0 that RowShift, in f32, is too coarse. RowShift is too coarse, for
/// example, if all keys of the row have an additive mask of -1e9 or the lowest f32.
[[nodiscard]] inline bool IsFarRow(float max, float sum) {
  constexpr float kFar = 1024;
  return std::fabs(max) > kFar && std::isfinite(max) && !IsEmptyRow(max, sum);
}

/// Adds to sums[key] the sum over lanes [0, count) of p[key][width], in one fixed order of the lanes.
void AddLanes(const float* p, int64_t keys, int64_t width, int64_t count, float* sums);

}  // namespace fa::ops

#endif  // FA_OPS_ROW_PROBABILITY_H_
