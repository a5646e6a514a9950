#ifndef FA_OPS_LOSS_ROW_H_
#define FA_OPS_LOSS_ROW_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// y = exp(scores - max) / sum of the first n. y may be scores.
void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float max, double sum,
                float* y);
/// The softmax of n scores, with their own maximum and sum.
void RowSoftmax(const core::kernels::RowKernels& kernels, const float* scores, int64_t n, float* y);

/// Sum of the terms p' (ln p' - ln y') with p' = max(p, 1e-8), y' = max(y, 1e-8); y becomes the gradient of its score,
/// y - p.
[[nodiscard]] double RowLoss(const float* p, int64_t n, float* y);

struct RowStatistics {
  float max = 0, sum = 0;
};
/// The maximum of n scores and the sum of exp(score - max); 0 and 0 without scores. Overwrites the scores.
[[nodiscard]] RowStatistics TakeStatistics(const core::kernels::RowKernels& kernels, int64_t n, float* scores);

[[nodiscard]] double RowSum(const float* p, int64_t n);
/// p *= 1 / sum; p becomes 0 if the sum is 0, as with the statistics of a row without keys.
void NormaliseRow(double sum, int64_t n, float* p);

/// The loss of a call: the sum of the losses of its tokens, in their order.
void WriteLoss(const double* losses, int64_t tokens, float multiplier, float* loss);

}  // namespace fa::ops

#endif  // FA_OPS_LOSS_ROW_H_
