#ifndef FA_TESTS_REFERENCE_EXPONENTIAL_H_
#define FA_TESTS_REFERENCE_EXPONENTIAL_H_

#include <cmath>

namespace reference {

/// Returns e^(x - max) for x <= max. If both are infinite, x is an infinite sink, which has the weight 1.
template <typename Real>
Real ExpBelow(Real x, Real max) {
  return x == max ? Real{1} : std::exp(x - max);
}

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_EXPONENTIAL_H_
