#ifndef FA_TESTS_SUPPORT_TOLERANCE_H_
#define FA_TESTS_SUPPORT_TOLERANCE_H_

#include <cstdint>

#include "fa/tensor.h"
#include "reference/attention.h"

namespace fa::test {

/// How far a forward in `dtype` with f32 accumulation may be from the forward in double. The rounding-error analysis
/// uses the magnitudes of each row. It takes errors of sums as random walks and bounds them at six standard deviations.
///
/// u = 2^-24, U is the unit roundoff of dtype, p_j the normalised probability, z_j the factor of dropout.
/// - A rounding is uniform in +-u |x|, so its standard deviation is u |x| / sqrt(3). Six of them are 3.5 u |x|, taken
///   as 4 u |x|. A sum of n terms of magnitudes A in total has n partial sums of at most A, so it is off by 4 sqrt(n) u
///   A.
/// - Score s_j is a sum of D products with a handful of operations (scale, log2 e, bias, subtraction of the maximum):
///   e_j = u (4 sqrt(D + Drope) + 8) A_j. Softcap: tanh is off by 8 u of the cap.
/// - p_j has the relative error e_j + exp2's error (f32: 2 ulp; 16-bit types: 4e-6) + the sum's error 4 sqrt(n) u.
/// - O = sum p z v moves by sum p_j e_j (z_j v_j - O), which is at most sum p_j e_j |z_j v_j| + |O| sum p_j e_j.
/// - 16-bit types round p z before it meets v: 4 U sqrt(sum (p z v)^2), with f16 also half the smallest number for a
///   subnormal p. The output's own rounding is U |O|.
class ForwardTolerance {
 public:
  /// @param operand_unit  the unit roundoff with which operands of both products may be rounded; 0: they are not. A
  /// sum of D products of total magnitude A is then off by 4 operand_unit sqrt(sum of squares), where the root is
  /// taken as 1.5 A / sqrt(D), as random numbers have it. For D < 3 it is A.
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
  double score_unit_;      ///< error of a score of magnitude 1
  double score_absolute_;  ///< error of a score of any magnitude
  double exp_relative_;
  double operand_unit_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_TOLERANCE_H_
