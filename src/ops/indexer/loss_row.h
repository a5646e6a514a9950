#ifndef FA_OPS_LOSS_ROW_H_
#define FA_OPS_LOSS_ROW_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// Sets y = exp(scores - max) / sum for the first n scores. y may be `scores`.
void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float max, double sum,
                float* y);
/// Computes the softmax of n scores, with their own maximum and sum.
void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float* y);

/// Returns the sum of the terms p' (ln p' - ln y') with p' = max(p, 1e-8) and y' = max(y, 1e-8). Each y is replaced by
/// the gradient of its score, y * weight - p.
[[nodiscard]] double RowLoss(const float* p, int64_t n, double weight, float* y);

struct RowStatistics {
  float max = 0, sum = 0;
};
/// Returns the maximum of n scores, and the sum of exp(score - max). Both are 0 if there are no scores. The function
/// overwrites the scores.
[[nodiscard]] RowStatistics TakeStatistics(const core::kernels::RowKernels& kernels, int64_t n, float* scores);

[[nodiscard]] double RowSum(const float* p, int64_t n);
/// Multiplies p by 1 / sum. If the sum is 0, as in the statistics of a row without keys, p becomes 0.
void NormaliseRow(double sum, int64_t n, float* p);

/// Writes the loss of a call: `multiplier` times the sum of the losses of its tokens, in their order.
void WriteLoss(const double* losses, int64_t tokens, float multiplier, float* loss);

}  // namespace fa::ops

#endif  // FA_OPS_LOSS_ROW_H_
