#include "kernels/operands.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

namespace fa::core::kernels {
namespace {

/// The compiler's f16 type. g++ 12 calls it __fp16 on aarch64, and _Float16, its standard name, on x86-64.
#if defined(__aarch64__)
using Half = __fp16;
#else
using Half = _Float16;
#endif

uint16_t TruncatedToBf16(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

/// Writes x, rounded to the type. @return the rounded number
double Store(DType dtype, float x, std::byte* to) {
  if (dtype == DType::kF16) {
    const auto half = static_cast<Half>(x);
    std::memcpy(to, &half, sizeof half);
    return static_cast<double>(static_cast<float>(half));
  }
  if (dtype == DType::kBF16) {
    const uint16_t bits = TruncatedToBf16(x);
    std::memcpy(to, &bits, sizeof bits);
    return FromBf16(bits);
  }
  std::memcpy(to, &x, sizeof x);
  return x;
}

[[noreturn]] void Fail(const std::string& what, double got, double want) {
  throw std::runtime_error(what + ": " + std::to_string(got) + ", want " + std::to_string(want));
}

}  // namespace

RandomRows::RandomRows(DType dtype, int64_t rows, int64_t columns, uint32_t seed)
    : dtype_(dtype), columns_(columns), memory_(static_cast<size_t>(rows * columns) * SizeOf(dtype)) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const size_t size = SizeOf(dtype);
  for (size_t i = 0; i < static_cast<size_t>(rows * columns); ++i) {
    values_.push_back(Store(dtype, normal(random), memory_.data() + i * size));
  }
  for (int64_t row = 0; row < rows; ++row) {
    addresses_.push_back(memory_.data() + static_cast<size_t>(row * columns) * size);
  }
}

std::vector<float> RandomFloats(int64_t count, uint32_t seed, float low, float high, bool as_bf16) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) {
    number = uniform(random);
    if (as_bf16) number = static_cast<float>(FromBf16(TruncatedToBf16(number)));
  }
  return numbers;
}

double FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

void WantedSum::Add(double term) {
  sum_ += term;
  magnitude_ += std::fabs(term);
  ++terms_;
}

void WantedSum::Check(const std::string& what, float got) const {
  const double bound = std::numeric_limits<float>::epsilon() * static_cast<double>(terms_ + 1) * magnitude_;
  if (!(std::fabs(got - sum_) <= bound)) Fail(what, got, sum_);
}

void CheckNear(const std::string& what, double got, double want, double relative) {
  if (!(std::fabs(got - want) <= relative * std::fabs(want))) Fail(what, got, want);
}

}  // namespace fa::core::kernels
