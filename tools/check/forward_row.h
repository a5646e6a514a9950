#ifndef FA_CHECK_FORWARD_ROW_H_
#define FA_CHECK_FORWARD_ROW_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "check/element.h"
#include "fa/tensor.h"

namespace fa::check {

/// The rows of one head: element (row, column) is data[offset + row * row_stride + column].
struct HeadRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t columns = 0;
};
[[nodiscard]] inline double At(const HeadRows& rows, int64_t row, int64_t column) {
  return LoadElement(rows.data, rows.dtype, rows.offset + row * rows.row_stride + column);
}

/// One row of attention in double. `bound` has one entry per column: how far a correct f32 computation may be from the
/// column's value.
struct ForwardRow {
  std::vector<double> out;
  std::vector<double> bound;
  double max = 0, log_sum = 0;  ///< max + log_sum is the log-sum-exp of the scores; both are 0 for a row without keys
  double lse_error = 0;         ///< how far a correct log-sum-exp may be from max + log_sum
};

/// The inputs of one query row. `keeps` tells whether the row sees a key.
struct ForwardRowInputs {
  HeadRows q, k, v;
  int64_t row = 0;
  int64_t sk = 0;
  double scale = 1;
  std::function<bool(int64_t key)> keeps;
};

/// Computes one row of Softmax(scale * q k^T) v by plain loops.
///
/// In the bound, u = 2^-24, and u_t is the unit roundoff of the inputs' type. A is the largest |scale| sum_d |q_d k_jd|
/// over the keys j. W_d = sum_j P_j |v_jd|, where P is normalised.
/// - A score is D multiply-adds, a scaling and a subtraction of the maximum, with values up to A. So it is off by at
///   most (D + 6) u A.
/// - P_j is a quotient of an exponential and a sum of exponentials. Each exponential has the error of a score, and the
///   error e of exp2 (2 ulp for f32, 4e-6 for 16-bit types). So the relative error of P_j is twice the sum of
///   both errors.
///   For a 16-bit type, rounding P adds u_t.
/// - The sum and the product with V have Sk additions each. Their errors add up to 2 Sk u.
/// - Rounding the output adds u_t |O_d|. In f16 the output may be subnormal, which adds 2^-25.
/// - The bound is (2 (D + 6) u A + 2 Sk u + 2 e + [16-bit] u_t) W_d + u_t |O_d| + [f16] 2^-25.
/// - The log-sum-exp has the errors of one score, of the sum and of one exp2: (D + 6) u A + Sk u + e. The error of the
///   maximum cancels, because the sum has the opposite error.
[[nodiscard]] ForwardRow ComputeForwardRow(const ForwardRowInputs& inputs);

}  // namespace fa::check

#endif  // FA_CHECK_FORWARD_ROW_H_
