#include "ops/limits/claimed_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

namespace fa::test {
namespace {

alignas(64) std::byte memory[1 << 16];

int64_t Numbers(const std::string& text) {
  int64_t numbers = 0;
  bool inside = false;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !inside) ++numbers;
    inside = digit;
  }
  return numbers;
}

}  // namespace

TensorView Claim(const Dims& shape, DType dtype) {
  Dims stride;
  for (int i = 0; i < shape.rank(); ++i) stride.push_back(i + 1 == shape.rank() ? 1 : 0);
  return {memory, dtype, shape, stride};
}

MutableTensorView ClaimOutput(const Dims& shape, DType dtype) { return {memory, dtype, shape, {}}; }

std::vector<int64_t> AbsurdSizes(int64_t least) {
  std::vector<int64_t> sizes;
  for (const int exponent : {31, 32, 40, 48, 55, 60, 61, 62}) {
    sizes.push_back(int64_t{1} << exponent);
    if (exponent <= 32) sizes.push_back((int64_t{1} << exponent) + 1);
  }
  sizes.push_back(std::numeric_limits<int64_t>::max());
  std::erase_if(sizes, [least](int64_t size) { return size < least; });
  return sizes;
}

void ExpectRefused(const Status& status, const std::string& what) {
  ASSERT_FALSE(status.ok()) << what;
  EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kOutOfMemory)
      << what << ": " << status.message();
  EXPECT_GE(Numbers(status.message()), 2) << what << ": " << status.message();
}

void ExpectRefusedOrSmall(const Result<Plan>& plan, const std::string& what) {
  if (!plan.ok()) return ExpectRefused(plan.status(), what);
  EXPECT_LT(plan->workspace_bytes(), size_t{1} << 47) << what;
  EXPECT_GE(plan->info().tasks, 0) << what;
}

}  // namespace fa::test
