#ifndef FA_TESTS_OPS_SPARSE_SPARSE_EXPECTATION_H_
#define FA_TESTS_OPS_SPARSE_SPARSE_EXPECTATION_H_

#include <vector>

#include "ops/sparse/sparse_case.h"

namespace fa::test {

/// These functions return the reference's outputs with the tolerances of dense attention (support/compare/tolerance.h,
/// support/compare/gradient_tolerance.h). Sparse attention is dense attention in which each token has its own keys. In
/// the forward, every token is a batch element with the keys of its list, in order. In the backward, every sequence is
/// a batch element with a dense mask. A key that a list names m times has the bias ln m, which multiplies its
/// probability by m.
///
/// A sink is one more key of zeros, whose bias is the sink. dsink is a sum of P delta over rows, computed in f64. Its
/// error consists of its rounding and of the errors of the deltas, which are sums of Dv products.
///
/// p_head_mean is the mean of N probabilities. Each is off by the errors of its score, of its exponential and of the
/// row's sum. With u = 2^-24, adding them is off by u (4 sqrt(N) + 8) times the mean.
[[nodiscard]] std::vector<ExpectedOutput> ExpectForward(const SparseCall& call);
[[nodiscard]] std::vector<ExpectedOutput> ExpectBackward(const SparseGradCall& call);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_SPARSE_SPARSE_EXPECTATION_H_
