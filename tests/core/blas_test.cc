#include "core/blas.h"

#include <cblas.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fa::core {
namespace {

// Returns small integers, so that every sum is exact in any order.
std::vector<float> SmallIntegers(size_t count, int seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed) * 13) % 11) - 5;
  return values;
}

std::vector<float> NaiveProduct(const BlasProduct& p, std::vector<float> c) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        sum += (p.transpose_a ? p.a[l * p.lda + i] : p.a[i * p.lda + l]) *
               (p.transpose_b ? p.b[j * p.ldb + l] : p.b[l * p.ldb + j]);
      }
      float& out = c[static_cast<size_t>(i * p.ldc + j)];
      out = p.alpha * sum + p.beta * out;
    }
  }
  return c;
}

TEST(Sgemm, MultipliesRowMajorWithAndWithoutTransposes) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      const std::vector<float> a = SmallIntegers(30 * 30, 1), b = SmallIntegers(30 * 30, 2);
      const std::vector<float> before = SmallIntegers(30 * 30, 3);
      std::vector<float> c = before;
      const BlasProduct product{.m = 17,
                                .n = 9,
                                .k = 23,
                                .a = a.data(),
                                .lda = 30,
                                .transpose_a = transpose_a,
                                .b = b.data(),
                                .ldb = 29,
                                .transpose_b = transpose_b,
                                .c = c.data(),
                                .ldc = 28,
                                .alpha = 2,
                                .beta = -1};
      Sgemm(product);
      EXPECT_EQ(c, NaiveProduct(product, before)) << transpose_a << transpose_b;
    }
  }
}

TEST(Sgemm, GivesRightProductsToMoreCallersThanAreLetIn) {
  const std::vector<float> a = SmallIntegers(64 * 64, 1), b = SmallIntegers(64 * 64, 2);
  std::vector<float> expected(64 * 64, 0);
  expected = NaiveProduct({.m = 64, .n = 64, .k = 64, .a = a.data(), .lda = 64, .b = b.data(), .ldb = 64, .ldc = 64},
                          expected);
  std::vector<int> wrong(kBlasCallers + 16, 0);
  std::vector<std::thread> callers;
  for (int& faults : wrong) {
    callers.emplace_back([&] {
      std::vector<float> c(64 * 64, 0);
      for (int run = 0; run < 50; ++run) {
        Sgemm(
            {.m = 64, .n = 64, .k = 64, .a = a.data(), .lda = 64, .b = b.data(), .ldb = 64, .c = c.data(), .ldc = 64});
        if (c != expected) ++faults;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

TEST(Sgemm, LeavesTheThreadCountOfOpenBlasAlone) {
  const int before = openblas_get_num_threads();
  float a = 2, b = 3, c = 0;
  Sgemm({.m = 1, .n = 1, .k = 1, .a = &a, .lda = 1, .b = &b, .ldb = 1, .c = &c, .ldc = 1});
  EXPECT_EQ(c, 6);
  EXPECT_EQ(openblas_get_num_threads(), before);
}

}  // namespace
}  // namespace fa::core
