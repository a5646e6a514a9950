#ifndef FA_TESTS_REFERENCE_EXPONENTIAL_H_
#define FA_TESTS_REFERENCE_EXPONENTIAL_H_

#include <cmath>

namespace reference {

/// Returns e^(x - max) for x <= max. Returns 1 if both are infinite: x is then an infinite sink.
template <typename Real>
Real ExpBelow(Real x, Real max) {
  return x == max ? Real{1} : std::exp(x - max);
}

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_EXPONENTIAL_H_
