#include "core/blas.h"

#include <cblas.h>
#include <pthread.h>

#include <cassert>
#include <limits>
#include <memory>
#include <semaphore>

namespace fa::core {
namespace {

std::counting_semaphore<kBlasCallers> callers(kBlasCallers);

// A forked child lacks the threads that were inside OpenBLAS at the fork. Nobody in the child would release the
// semaphore for them, so the child makes it anew.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { std::construct_at(&callers, kBlasCallers); });

blasint BlasInt(int64_t size) {
  assert(size <= std::numeric_limits<blasint>::max());
  return static_cast<blasint>(size);
}

}  // namespace

void Sgemm(const BlasProduct& p) {
  callers.acquire();
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans,
              BlasInt(p.m), BlasInt(p.n), BlasInt(p.k), p.alpha, p.a, BlasInt(p.lda), p.b, BlasInt(p.ldb), p.beta, p.c,
              BlasInt(p.ldc));
  callers.release();
}

}  // namespace fa::core
