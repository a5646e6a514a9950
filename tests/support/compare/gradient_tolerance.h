#ifndef FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
#define FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_

#include "fa/tensor.h"
#include "reference/attention.h"
#include "support/cases/backward_case.h"

namespace fa::test {

/// How far a backward in `dtype` with f32 accumulation may be from `exact`, element by element: rounding-error analysis
/// in the terms of ForwardTolerance (support/compare/tolerance.h): u = 2^-24, U the unit roundoff of dtype, a sum of n
/// products of magnitudes A in total is off by u (4 sqrt(n) + 8) A at most.
///
/// - out and the statistics are given, so P = exp(s - max) / sum is off by the relative e_P = e_s + exp2's +
///   4 u (|max| + |ln sum|), the last from the rounded shift max + ln(sum).
/// - dP = z dO.V and delta = dO.O are sums of Dv products; dS = P (dP - delta) is off by
///   e_P |dS| + P e_(dP, delta) + 4 u |dS|, and by FLT_MIN (|dP| + |delta|) where P is flushed.
/// - Softcap: dS (1 - t^2), t off by 8 u + e_s / cap.
/// - 16-bit types: z P and dS may be rounded before they meet dO, K and Q: independent errors of U |x| (f16: at least
///   half the smallest number) each. bf16: VDPBF16PS takes subnormal operands and sums as 0, so each of them, and each
///   product, may also be off by FLT_MIN.
/// - dQ, dK, dV, dpse, dslopes: the sums of all these, plus the error of the additions, plus the output's own rounding.
///
/// Where nothing contributes to an element, the bound is 0.
[[nodiscard]] reference::Gradients GradientTolerance(const BackwardValues& values, DType dtype, DType pse_dtype,
                                                     const reference::Gradients& exact);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_GRADIENT_TOLERANCE_H_
