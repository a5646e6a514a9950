#ifndef FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
#define FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_

#include "fa/tensor.h"
#include "reference/attention.h"
#include "support/cases/backward_case.h"

namespace fa::test {

/// Returns how far each element of a backward in `dtype` with f32 accumulation may be from `exact`. The analysis of
/// rounding errors has the terms of ForwardTolerance (support/compare/tolerance.h): u = 2^-24, and U is the unit
/// roundoff of dtype. If the magnitudes of n products add up to A, their sum is off by at most u (4 sqrt(n) + 8) A.
///
/// - out and the statistics are given. So P = exp(s - max) / sum has the relative error e_P = e_s + exp2's error + 4 u
///   (|max| + |ln sum|), where e_s is the error of the score s. The last term comes from rounding the shift max +
///   ln(sum).
/// - dP = z dO.V and delta = dO.O are sums of Dv products; z is the factor of dropout. dS = P (dP - delta) is off by
///   e_P |dS| + P (the errors of dP and delta) + 4 u |dS|. Where P is flushed to 0, it is also off by FLT_MIN (|dP| +
///   |delta|).
/// - Softcap multiplies dS by (1 - t^2), where t = tanh(s / cap) is off by 8 u + e_s / cap.
/// - 16-bit types may round z P and dS before they are multiplied by dO, K and Q. These errors are independent. The
///   error of a rounded number x is U |x|, and for f16 at least half the smallest number. In bf16, VDPBF16PS takes
///   subnormal operands and sums as 0. So each operand, product and sum may also be off by FLT_MIN.
/// - dQ, dK, dV, dpse and dslopes are off by the sums of the errors above, by the errors of additions, and by their own
///   rounding.
///
/// The bound of an element to which nothing contributes is 0.
[[nodiscard]] reference::Gradients GradientTolerance(const BackwardValues& values, DType dtype, DType pse_dtype,
                                                     const reference::Gradients& exact);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
