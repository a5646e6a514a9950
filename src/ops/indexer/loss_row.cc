// Computes the rows of a KL loss and of its statistics. A row has n probabilities and n scores. A sum adds its terms
// one by one in double and is rounded once.

#include "ops/indexer/loss_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace fa::ops {
namespace {

// In the loss, but not in the gradients, a smaller p or y counts as this value. The NPU uses the same value.
constexpr float kSmallest = 1e-8F;

/// Computes y = exp(scores - max).
void Exponentials(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float max, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = (scores[i] - max) * std::numbers::log2e_v<float>;
  kernels.exp2(y, n, y);
}

}  // namespace

void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float max, double sum,
                float* y) {
  Exponentials(kernels, scores, n, max, y);
  NormaliseRow(sum, n, y);
}

void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float* y) {
  if (n == 0) return;
  Exponentials(kernels, scores, n, *std::max_element(scores, scores + n), y);
  NormaliseRow(RowSum(y, n), n, y);
}

RowStatistics TakeStatistics(const core::kernels::RowKernels& kernels, int64_t n, float* scores) {
  if (n == 0) return {};
  float max = scores[0];
  bool has_nan = false;
  for (int64_t i = 0; i < n; ++i) {
    max = std::max(max, scores[i]);
    has_nan |= std::isnan(scores[i]);
  }
  // If the maximum is 0, it may be -0 or +0, depending on the order of the scores. Adding 0 makes it +0.
  max = has_nan ? std::numeric_limits<float>::quiet_NaN() : max + 0.0F;
  Exponentials(kernels, scores, n, max, scores);
  return {max, static_cast<float>(RowSum(scores, n))};
}

double RowLoss(const float* p, int64_t n, double weight, float* y) {
  double loss = 0;
  for (int64_t i = 0; i < n; ++i) {
    // std::max returns a first argument that is NaN, so a NaN in p or y reaches the loss.
    const float target = std::max(p[i], kSmallest);
    loss += target * std::log(static_cast<double>(target) / std::max(y[i], kSmallest));
    y[i] = static_cast<float>(y[i] * weight) - p[i];
  }
  return loss;
}

double RowSum(const float* p, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += p[i];
  return sum;
}

void NormaliseRow(double sum, int64_t n, float* p) {
  // The factor is a double, because 1 / sum overflows f32 if the sum is subnormal. The sum may be subnormal if the
  // given statistics do not belong to this row's keys.
  const double factor = sum == 0 ? 0 : 1 / sum;
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<float>(p[i] * factor);
}

void WriteLoss(const double* losses, int64_t tokens, float multiplier, float* loss) {
  double sum = 0;
  for (int64_t token = 0; token < tokens; ++token) sum += losses[token];
  *loss = static_cast<float>(sum * multiplier);
}

}  // namespace fa::ops
