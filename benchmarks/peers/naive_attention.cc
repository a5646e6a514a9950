// This file is built with -ffast-math. Functions that compute exponentials are built once per vector width, so that the
// compiler vectorises them. The naive peer should be slow because of its memory traffic, not because of its
// exponentials.

#include "peers/naive_attention.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

// The loader chooses the widest version that the CPU can run.
#if defined(__x86_64__)
#define FA_EVERY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FA_EVERY_WIDTH
#endif

namespace fa::peers {
namespace {

struct Product {
  int64_t m, n, k;
  const float* a;
  bool transpose_a;
  const float* b;
  bool transpose_b;
  float* c;
  float alpha = 1;
};

/// Computes C[m][n] = alpha op(A) op(B) of dense row-major matrices.
void Multiply(const Product& p) {
  const auto size = [](int64_t n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans,
              size(p.m), size(p.n), size(p.k), p.alpha, p.a, size(p.transpose_a ? p.m : p.k), p.b,
              size(p.transpose_b ? p.k : p.n), 0, p.c, size(p.n));
}

/// Turns the first `kept` scores into probabilities and the others into 0. @return the log-sum-exp
FA_EVERY_WIDTH float SoftmaxRow(float* s, int64_t kept, int64_t keys) {
  float max = s[0], sum = 0;
  for (int64_t j = 1; j < kept; ++j) max = std::max(max, s[j]);
  for (int64_t j = 0; j < kept; ++j) {
    s[j] = std::exp(s[j] - max);
    sum += s[j];
  }
  const float scale = 1 / sum;
  for (int64_t j = 0; j < kept; ++j) s[j] *= scale;
  std::fill(s + kept, s + keys, 0.0f);
  return max + std::log(sum);
}

/// Turns the first `kept` scores in `p` into probabilities, and the gradients of these probabilities in `ds` into
/// gradients of the scores. All other elements of `p` and `ds` become 0.
FA_EVERY_WIDTH void GradientRow(float* p, float* ds, int64_t kept, int64_t keys, float lse, float delta) {
  for (int64_t j = 0; j < kept; ++j) {
    p[j] = std::exp(p[j] - lse);
    ds[j] = p[j] * (ds[j] - delta);
  }
  std::fill(p + kept, p + keys, 0.0f);
  std::fill(ds + kept, ds + keys, 0.0f);
}

}  // namespace

struct NaiveAttention::Group {
  const float *q, *k;
  int64_t query, key;  ///< offsets of the group's first element: in q and out, and in k and v
};

NaiveAttention::NaiveAttention(const NaiveSizes& sizes, int threads)
    : sizes_(sizes), rows_(sizes.heads / sizes.heads_kv * sizes.sq), threads_(threads) {
  openblas_set_num_threads(1);
  scratch_.assign(static_cast<size_t>(threads), std::vector<float>(static_cast<size_t>(2 * rows_ * sizes.sk)));
}

NaiveAttention::Group NaiveAttention::GroupAt(const float* q, const float* k, int64_t index) const {
  const int64_t query = index * rows_ * sizes_.d, key = index * sizes_.sk * sizes_.d;
  return {q + query, k + key, query, key};
}

int64_t NaiveAttention::Kept(int64_t row) const {
  return sizes_.causal ? sizes_.sk - sizes_.sq + row % sizes_.sq + 1 : sizes_.sk;
}

void NaiveAttention::Scores(const Group& group, float* s) const {
  const float scale = 1 / std::sqrt(static_cast<float>(sizes_.d));
  Multiply({rows_, sizes_.sk, sizes_.d, group.q, false, group.k, true, s, scale});
}

void NaiveAttention::ForwardGroup(const Group& group, const float* v, float* out, float* lse, float* scores) const {
  Scores(group, scores);
  for (int64_t row = 0; row < rows_; ++row) {
    lse[group.query / sizes_.d + row] = SoftmaxRow(scores + row * sizes_.sk, Kept(row), sizes_.sk);
  }
  Multiply({rows_, sizes_.d, sizes_.sk, scores, false, v + group.key, false, out + group.query});
}

void NaiveAttention::BackwardGroup(const Group& group, const Gradients& tensors, float* p, float* ds) const {
  const int64_t d = sizes_.d, keys = sizes_.sk;
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  const float* d_out = tensors.d_out + group.query;
  const float* out = tensors.out + group.query;
  Scores(group, p);
  Multiply({rows_, keys, d, d_out, false, tensors.v + group.key, true, ds});
  for (int64_t row = 0; row < rows_; ++row) {
    const float lse = tensors.lse[group.query / d + row];
    float delta = 0;
    for (int64_t c = 0; c < d; ++c) delta += d_out[row * d + c] * out[row * d + c];
    GradientRow(p + row * keys, ds + row * keys, Kept(row), keys, lse, delta);
  }
  Multiply({keys, d, rows_, p, true, d_out, false, tensors.dv + group.key});
  Multiply({rows_, d, keys, ds, false, group.k, false, tensors.dq + group.query, scale});
  Multiply({keys, d, rows_, ds, true, group.q, false, tensors.dk + group.key, scale});
}

void NaiveAttention::Forward(const float* q, const float* k, const float* v, float* out, float* lse) {
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
  for (int64_t i = 0; i < sizes_.batch * sizes_.heads_kv; ++i) {
    ForwardGroup(GroupAt(q, k, i), v, out, lse, scratch_[static_cast<size_t>(omp_get_thread_num())].data());
  }
}

void NaiveAttention::Backward(const Gradients& tensors) {
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
  for (int64_t i = 0; i < sizes_.batch * sizes_.heads_kv; ++i) {
    float* p = scratch_[static_cast<size_t>(omp_get_thread_num())].data();
    BackwardGroup(GroupAt(tensors.q, tensors.k, i), tensors, p, p + rows_ * sizes_.sk);
  }
}

}  // namespace fa::peers
