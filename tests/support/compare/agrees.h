#ifndef FA_TESTS_SUPPORT_AGREES_H_
#define FA_TESTS_SUPPORT_AGREES_H_

#include <cmath>
#include <stdexcept>
#include <vector>

namespace fa::test {

/// Whether a computed value is the expected one. Where NaN is expected it must be NaN; infinities, and values whose
/// `allowed` is 0, must be equal; other values must be within `allowed`. An infinite or NaN bound would let anything
/// pass, so nothing agrees with it.
inline bool Agrees(double got, double want, double allowed) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || allowed == 0) return got == want;
  return std::isfinite(allowed) && std::fabs(got - want) <= allowed;
}

/// The largest difference of two equally long tensors. It is NaN or infinite if one of the differences is.
inline double LargestError(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) throw std::invalid_argument("tensors of different sizes");
  double largest = 0;
  for (size_t x = 0; x < want.size(); ++x) {
    const double error = std::fabs(got[x] - want[x]);
    if (std::isnan(error)) return error;
    largest = std::fmax(largest, error);
  }
  return largest;
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_AGREES_H_
