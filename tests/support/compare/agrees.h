#ifndef FA_TESTS_SUPPORT_AGREES_H_
#define FA_TESTS_SUPPORT_AGREES_H_

#include <cmath>
#include <stdexcept>
#include <vector>

namespace fa::test {

/// Returns whether a computed value agrees with the expected one. If NaN is expected, the value must be NaN. The values
/// must be equal if one is infinite, or if `allowed` is 0. Other values may differ by `allowed`. If `allowed` is
/// infinite or NaN, no value agrees.
inline bool Agrees(double got, double want, double allowed) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || allowed == 0) return got == want;
  return std::isfinite(allowed) && std::fabs(got - want) <= allowed;
}

/// Returns the largest difference of two equally long tensors. It is NaN or infinite if any difference is.
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
