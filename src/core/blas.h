#ifndef FA_CORE_BLAS_H_
#define FA_CORE_BLAS_H_

#include <cstdint>

namespace fa::core {

/// The product C = alpha * op(A) * op(B) + beta * C in f32, row-major. op(X) is X or, with `transpose_a` or
/// `transpose_b`, X transposed. op(A) is [m, k], and op(B) is [k, n].
struct BlasProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  bool transpose_a = false;
  const float* b = nullptr;
  int64_t ldb = 0;
  bool transpose_b = false;
  float* c = nullptr;
  int64_t ldc = 0;
  float alpha = 1, beta = 0;
};

/// Calls OpenBLAS' sgemm. Any number of threads may call it: at most kBlasCallers are inside at once, and the others
/// wait. Sizes must fit OpenBLAS' int. The function does not change OpenBLAS' own thread count, which is a setting of
/// the whole process.
void Sgemm(const BlasProduct& product);

/// OpenBLAS has one work buffer for each thread for which it was built (64 or more in Debian's build). Half of 64
/// leaves buffers for other callers in the program.
inline constexpr int kBlasCallers = 32;

}  // namespace fa::core

#endif  // FA_CORE_BLAS_H_
