#ifndef FA_TESTS_REFERENCE_EXPONENTIAL_H_
#define FA_TESTS_REFERENCE_EXPONENTIAL_H_

#include <cmath>

namespace reference {

/// e^(x - max) of an x that is at most max. An infinite sink is its row's maximum, and takes a weight of 1.
template <typename Real>
Real ExpBelow(Real x, Real max) {
  return x == max ? Real{1} : std::exp(x - max);
}

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_EXPONENTIAL_H_
