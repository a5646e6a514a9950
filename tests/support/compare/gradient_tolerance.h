#ifndef FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
#define FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_

#include "fa/tensor.h"
#include "reference/attention.h"
#include "support/cases/backward_case.h"

namespace fa::test {

/// How far each element of a backward in `dtype` with f32 accumulation may be from `exact`. The rounding-error analysis
/// has the terms of ForwardTolerance (support/compare/tolerance.h): u = 2^-24, U the unit roundoff of dtype. A sum of n
/// products of magnitudes A in total is off by at most u (4 sqrt(n) + 8) A.
///
/// - out and the statistics are given, so P = exp(s - max) / sum has the relative error e_P = e_s + exp2's error + 4 u
///   (|max| + |ln sum|). The last term comes from rounding the shift max + ln(sum).
/// - dP = z dO.V and delta = dO.O are sums of Dv products. dS = P (dP - delta) is off by e_P |dS| + P e_(dP, delta) + 4
///   u |dS|, and by FLT_MIN (|dP| + |delta|) where P is flushed.
/// - Softcap multiplies dS by (1 - t^2), where t is off by 8 u + e_s / cap.
/// - 16-bit types may round z P and dS before they meet dO, K and Q. These errors are independent and U |x| each (f16:
///   at least half the smallest number). In bf16, VDPBF16PS takes subnormal operands and sums as 0, so each of them,
///   and each product, may also be off by FLT_MIN.
/// - dQ, dK, dV, dpse and dslopes are off by the sums of all these, by the errors of additions, and by their own
///   rounding.
///
/// Where nothing contributes to an element, the bound is 0.
[[nodiscard]] reference::Gradients GradientTolerance(const BackwardValues& values, DType dtype, DType pse_dtype,
                                                     const reference::Gradients& exact);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
