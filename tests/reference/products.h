#ifndef FA_TESTS_REFERENCE_PRODUCTS_H_
#define FA_TESTS_REFERENCE_PRODUCTS_H_

#include <array>
#include <cmath>
#include <cstdint>

namespace reference {

/// Returns the sum of a[x] * b[x] in double. If `magnitude` is given, adds the sum of |a[x] * b[x]| to it. Eight
/// partial sums are faster, because with a single sum each addition would wait for the one before.
inline double SumOfProducts(const double* a, const double* b, int64_t size, double* magnitude = nullptr) {
  constexpr int64_t kParts = 8;
  std::array<double, kParts> sums{}, magnitudes{};
  const int64_t whole = size / kParts * kParts;
  for (int64_t first = 0; first < whole; first += kParts) {
    for (int64_t part = 0; part < kParts; ++part) {
      const double term = a[first + part] * b[first + part];
      sums[part] += term;
      magnitudes[part] += std::fabs(term);
    }
  }
  for (int64_t x = whole; x < size; ++x) {
    sums[x - whole] += a[x] * b[x];
    magnitudes[x - whole] += std::fabs(a[x] * b[x]);
  }
  const auto total = [](const std::array<double, kParts>& parts) {
    return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
  };
  if (magnitude != nullptr) *magnitude += total(magnitudes);
  return total(sums);
}

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_PRODUCTS_H_
