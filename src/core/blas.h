#ifndef FA_CORE_BLAS_H_
#define FA_CORE_BLAS_H_

#include <cstdint>

namespace fa::core {

/// C = alpha * op(A) * op(B) + beta * C in f32, row-major; op transposes where asked. op(A) is [m, k], op(B) [k, n].
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

/// OpenBLAS' sgemm, from any number of threads: at most kBlasCallers are inside at once, the others wait. Sizes must
/// fit OpenBLAS' int. OpenBLAS' own thread count, a setting of the whole process, stays as it is.
void Sgemm(const BlasProduct& product);

/// OpenBLAS hands out its work buffers from a table made for the threads it was built for (64 and more in Debian's
/// build); half of that leaves room for other callers of the program.
inline constexpr int kBlasCallers = 32;

}  // namespace fa::core

#endif  // FA_CORE_BLAS_H_
