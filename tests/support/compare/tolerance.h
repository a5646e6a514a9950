#ifndef FA_TESTS_SUPPORT_TOLERANCE_H_
#define FA_TESTS_SUPPORT_TOLERANCE_H_

#include <cstdint>

#include "fa/tensor.h"
#include "reference/attention.h"

namespace fa::test {

/// Bounds how far a forward in `dtype` with f32 accumulation may be from the forward in double. The analysis of
/// rounding errors uses the magnitudes of each row. It treats the errors of a sum as a random walk, and bounds them by
/// six standard deviations.
///
/// u = 2^-24, U is the unit roundoff of dtype, p_j the normalised probability of key j, and z_j its factor of dropout.
/// - The error of a rounding is spread evenly over +-u |x|, so its standard deviation is u |x| / sqrt(3). Six of them
///   are 3.5 u |x|, taken as 4 u |x|. If the magnitudes of n terms add up to A, their sum has n partial sums of at most
///   A. So it is off by 4 sqrt(n) u A.
/// - A score s_j is a sum of D + Drope products, followed by a handful of operations (scale, log2 e, bias, subtraction
///   of the maximum). With A_j, the sum of its terms' magnitudes, it is off by e_j = u (4 sqrt(D + Drope) + 8) A_j.
///   With a softcap, tanh is off by 8 u of the cap.
/// - p_j has the relative error e_j + exp2's error (f32: 2 ulp; 16-bit types: 4e-6) + 4 sqrt(n) u for the sum of n
///   exponentials.
/// - O = sum p z v changes by sum p_j e_j (z_j v_j - O), which is at most sum p_j e_j |z_j v_j| + |O| sum p_j e_j.
/// - 16-bit types round p z before the product with v. This adds 4 U sqrt(sum (p z v)^2), and with f16 half the
///   smallest number for a subnormal p. Rounding the output adds U |O|.
class ForwardTolerance {
 public:
  /// @param operand_unit  the unit roundoff if operands of both products may be rounded, otherwise 0. The sum of D
  ///                      rounded products is off by 4 operand_unit R, where R^2 is the sum of the products' squares.
  ///                      If the products' magnitudes add up to A, R of a score is taken as 1.5 A / sqrt(D), which
  ///                      holds for random numbers. For D < 3, R is taken as A.
  ForwardTolerance(const reference::Problem& problem, const reference::ForwardResult& exact, DType dtype,
                   double operand_unit = 0);

  [[nodiscard]] double Out(int64_t row, int64_t element) const;
  [[nodiscard]] double Max(int64_t row) const;
  [[nodiscard]] double Sum(int64_t row) const;
  [[nodiscard]] double Lse(int64_t row) const;

 private:
  [[nodiscard]] double SumRelative(int64_t row) const;

  const reference::ForwardResult& exact_;
  reference::Format format_;
  double score_unit_;      ///< error of a score, relative to the sum of the magnitudes of the score's terms
  double score_absolute_;  ///< the part of a score's error that does not depend on the magnitudes: the error of tanh
  double exp_relative_;
  double operand_unit_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_TOLERANCE_H_
